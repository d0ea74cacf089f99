/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec.h - the job file: one table of keys makes the parser, the errors,
 * schema/job.schema.json and the man page. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/job/presets.h"

struct err;

enum { JOB_MAX_BYTES = 1 << 20, JOB_MAX_LIST = 64, JOB_MAX_NUMBERS = 4096, JOB_MAX_RANKS = 64, JOB_MAX_SHARDS = 64 };
enum { JOB_SIZE_GRAIN = 32 }; /* input sides are multiples of it, pixels */
/* Regions are cut from feature maps with a multiple of so many channels, so that no device or precision has gaps
 * between pixels. */
enum { JOB_REGION_GRAIN = 8 };
/* Maximum number of pictures that a frame is compared with, of data.sources and data.stereo. */
enum { JOB_MAX_SOURCES = 3 };

/* A key of the job file.
 *   field    member of struct jobspec    key   its place in the JSON
 *   type     STR PATH ENUM INT REAL BOOL REALS (list of numbers) MAP (object of strings) SIZE (a whole number: both
 *            sides; or a list of two) INTS (a whole number, or a list of them) STRS (a text, or a list of them) NUMBERS
 *            (object of numbers)
 *   def      default as JSON text; "null" = computed by jobspec_finish() or absent, as the help says; "-" = required
 *   neutral  the value, as JSON text, that means "as before this key existed". jobspec_deciding() leaves out a key with
 *            this value, so that checkpoints older than the key stay good. A stored job without the key has this value,
 *            independent of the default.
 *            "-" = always given: the keys of the first release; "*" = never given, the key decides no result; "~" =
 *            neither given nor stored: the submitter turns the key into another one
 *   families the families of models (presets.h) that have the key, separated by blanks; "" = all, "!rcnn" = all but
 *            that one. For a model of another family the key is an error, and neither jobspec_json() nor
 *            jobspec_deciding() gives it. A family may have its own default: job_defaults of presets.h
 *   min,max  range of numbers (INTS NUMBERS: of each), or length of strings and lists (STRS: number of texts) (REAL: a
 *            min written as 1e-300 means "> 0")
 *   unit     "" if there is no unit        values   ENUM: allowed words, separated by '|'
 *   Types: PATHs are made absolute by the client, relative to the job file. */
/* clang-format off */
#define JOB_KEYS(X)                                                                                                                       \
    X(name, "name", STR, "\"job\"", "*", "", 1, 64, "", "", "name shown in lists")                                                        \
    X(model_preset, "model.preset", ENUM, "null", "-", "", 0, 0, "", JOB_PRESET_WORDS, "network by name; this or model.cfg")              \
    X(model_cfg, "model.cfg", PATH, "null", "-", "yolo", 0, 4095, "", "", "darknet .cfg of the YOLOv3 family")                            \
    X(model_size, "model.size", SIZE, "null", "-", "!rcnn", 32, 2048, "px", "",                                                           \
      "network input: the side of a square or [width, height], multiples of 32; default from the preset or cfg, [640, 192] of depth networks, which take 64 each way at least, and 96 with an autoencoder")                          \
    X(model_width, "model.width", REAL, "1.0", "-", "yolo rcnn depth", 1e-2, 8, "x", "", "scales the channels of all hidden layers of a preset") \
    X(model_init, "model.init", PATH, "null", "-", "", 0, 4095, "", "",                                                                   \
      "weights to start from: .safetensors, of yolo darknet .weights too; or job:12, with @best, @last or @STEP: that job's as it is now")\
    X(model_load_until, "model.load_until", INT, "null", "-", "yolo", 0, 10000, "layer", "",                                              \
      "load only layers before this one from model.init")                                                                                 \
    X(model_sync_bn, "model.sync_bn", BOOL, "false", "-", "", 0, 0, "", "", "batch statistics over all shards instead of each shard")     \
    X(model_freeze_bn, "model.freeze_bn", BOOL, "false", "-", "", 0, 0, "", "", "normalise with running statistics, which stay as loaded") \
    X(model_bn_momentum, "model.bn_momentum", REAL, "0.03", "-", "", 1e-300, 1, "", "", "weight of a step in the running statistics")     \
    X(model_obj_prior, "model.obj_prior", REAL, "0.01", "-", "yolo", 0, 0.5, "", "",                                                      \
      "initial objectness of new heads; 0 leaves the biases at 0")                                                                        \
    X(model_anchor_sizes, "model.anchor_sizes", REALS, "[]", "[]", "yolo", 0, 64, "px", "",                                               \
      "width and height of each anchor at the network's input, smallest first, as detctl anchors prints them; default those of the network") \
    X(model_ignore_thresh, "model.ignore_thresh", REAL, "null", "-", "yolo", 0, 1, "IoU", "", "default from the cfg (.7)")                \
    X(model_assign_iou_thresh, "model.assign_iou_thresh", REAL, "null", "-", "yolo", 0, 1, "IoU", "",                                     \
      "further anchors above it are positive too (1: none); default 1, or the iou_thresh of the .cfg")                                                                                        \
    X(model_box_gain, "model.box_gain", REAL, "1.0", "-", "yolo", 0, 1e6, "x", "", "weight of the box term")                              \
    X(model_obj_gain, "model.obj_gain", REAL, "1.0", "-", "yolo", 0, 1e6, "x", "", "weight of the objectness term of positives")          \
    X(model_noobj_gain, "model.noobj_gain", REAL, "1.0", "-", "yolo", 0, 1e6, "x", "", "weight of the objectness term of negatives")      \
    X(model_cls_gain, "model.cls_gain", REAL, "1.0", "-", "yolo", 0, 1e6, "x", "", "weight of the class term")                            \
    X(model_flavor, "model.flavor", ENUM, "\"d2\"", "-", "rcnn", 0, 0, "", "d2|tv",                                                       \
      "details of detectron2, or of torchvision 0.15 and newer (pictures are resized to bytes)")                                          \
    X(model_backbone, "model.backbone", ENUM, "null", "-", "rcnn", 0, 0, "", "msra|torchvision",                                          \
      "whose ImageNet weights fit: place of strides, order and scale of colours; default by model.flavor")                                \
    X(model_freeze_at, "model.freeze_at", INT, "0", "-", "rcnn", 0, 5, "stages", "",                                                      \
      "so many stages of the backbone, stem first, do not train; needs model.init")                                                       \
    X(model_bn_eps, "model.bn_eps", REAL, "1e-5", "-", "rcnn", 0, 1, "", "", "added to variances; 0 for torchvision's COCO_V1 weights")   \
    X(model_fpn_channels, "model.fpn_channels", INT, "256", "-", "rcnn", 8, 4096, "", "",                                                 \
      "of the feature pyramid and the RPN, a multiple of 8")                                                                              \
    X(model_head_channels, "model.head_channels", INT, "1024", "-", "rcnn", 1, 16384, "", "", "of both hidden layers of the box head")    \
    X(model_mask_channels, "model.mask_channels", INT, "256", "-", "rcnn", 1, 4096, "", "", "of the mask head")                           \
    X(model_anchors, "model.anchors", REALS, "[32, 64, 128, 256, 512]", "-", "rcnn", 5, 5, "px", "", "sides of the anchors of P2 to P6")  \
    X(model_rpn_batch, "model.rpn_batch", INT, "256", "-", "rcnn", 1, 4096, "anchors", "", "sampled in an image for the RPN's losses")    \
    X(model_rpn_positive, "model.rpn_positive", REAL, "0.5", "-", "rcnn", 0, 1, "", "", "of these, positive at most")                     \
    X(model_rpn_pre_nms, "model.rpn_pre_nms", INT, "2000", "-", "rcnn", 1, 8192, "boxes", "",                                             \
      "best of a level that go into suppression, in training")                                                                            \
    X(model_rpn_pre_nms_val, "model.rpn_pre_nms_val", INT, "1000", "-", "rcnn", 1, 8192, "boxes", "", "likewise, in validation")          \
    X(model_rpn_post_nms, "model.rpn_post_nms", INT, "null", "-", "rcnn", 1, 8192, "boxes", "",                                           \
      "proposals of an image, in training; default 1000, 2000 with model.flavor tv")                                                      \
    X(model_rpn_post_nms_val, "model.rpn_post_nms_val", INT, "1000", "-", "rcnn", 1, 8192, "boxes", "", "likewise, in validation")        \
    X(model_rpn_nms, "model.rpn_nms", REAL, "0.7", "-", "rcnn", 0, 1, "IoU", "", "suppression within a level")                            \
    X(model_roi_batch, "model.roi_batch", INT, "512", "-", "rcnn", 1, 4096, "boxes", "", "sampled in an image for the losses of the heads") \
    X(model_roi_positive, "model.roi_positive", REAL, "0.25", "-", "rcnn", 0, 1, "", "", "of these, foreground at most")                  \
    X(model_mask_rois, "model.mask_rois", INT, "null", "-", "rcnn", 1, 4096, "boxes", "",                                                 \
      "of these, in the mask head at most; default: all of the foreground")                                                               \
    X(model_mask_pool, "model.mask_pool", INT, "14", "14", "rcnn", 4, 32, "cells", "",                                                    \
      "side of what the mask head sees of a region; its masks have twice as many: more draw finer outlines, at the cost of their square") \
    X(model_min_size, "model.min_size", INTS, "null", "-", "rcnn", 1, 4096, "px", "",                                                     \
      "shorter side of pictures: one, or several to draw from for each shard of a step, of which validation takes the last; "             \
      "default 640, 672 .. 800, with model.flavor tv 800")                                                                                \
    X(model_max_size, "model.max_size", INT, "1333", "-", "rcnn", 1, 8192, "px", "",                                                      \
      "the longer side is no longer, whatever becomes of the shorter")                                                                    \
    X(model_size_divisible, "model.size_divisible", INT, "32", "-", "rcnn", 32, 1024, "px", "",                                           \
      "sides of a canvas are rounded up to multiples of it, itself one of 32")                                                            \
    X(model_pose_layers, "model.pose_layers", INT, "18", "-", "depth", 18, 101, "layers", "", "of the ResNet that sees motion: 18, 34, 50 or 101") \
    X(model_decoder, "model.decoder", ENUM, "\"crp\"", "-", "depth", 0, 0, "", "crp|upconv",                                            \
      "of depth: FeatDepth's chained residual pooling, or monodepth2's, whose maps are twice as large")                                    \
    X(model_min_depth, "model.min_depth", REAL, "0.1", "-", "depth", 1e-6, 1e6, "", "", "nearest depth the network can say, in units of its own") \
    X(model_max_depth, "model.max_depth", REAL, "100", "-", "depth", 1e-6, 1e6, "", "", "farthest")                                       \
    X(model_pose_size, "model.pose_size", SIZE, "null", "-", "depth", 32, 2048, "px", "",                                                 \
      "input of the network that sees motion, as model.size, which is the default")                                                       \
    X(model_ssim_weight, "model.ssim_weight", REAL, "0.85", "-", "depth", 0, 1, "", "",                                                   \
      "of structural similarity in the photometric error; the rest is the difference")                                                    \
    X(model_perception, "model.perception", REAL, "1e-3", "-", "depth", 0, 1e6, "x", "", "weight of the feature-metric term")             \
    X(model_smoothness, "model.smoothness", REAL, "1e-3", "-", "depth", 0, 1e6, "x", "", "weight of the smoothness terms")                \
    X(model_dis, "model.dis", REAL, "1e-3", "-", "depth", 0, 1e6, "x", "", "weight of the features' first differences, which are rewarded") \
    X(model_cvt, "model.cvt", REAL, "1e-3", "-", "depth", 0, 1e6, "x", "", "weight of the features' second differences")                  \
    X(model_automask, "model.automask", ENUM, "\"auto\"", "-", "depth", 0, 0, "", "auto|on|off",                                        \
      "leave out pixels that a source shows better unmoved; auto: without data.stereo")                                                   \
    X(model_automask_noise, "model.automask_noise", ENUM, "\"uniform\"", "-", "depth", 0, 0, "", "uniform|normal|none",                 \
      "what breaks its ties, of deviation 1e-5")                                                                                          \
    X(model_disp_norm, "model.disp_norm", ENUM, "\"auto\"", "-", "depth", 0, 0, "", "auto|on|off",                                      \
      "smoothness of disparity over its mean; auto: without data.stereo")                                                                 \
    X(model_align_corners, "model.align_corners", BOOL, "true", "-", "depth", 0, 0, "", "",                                               \
      "sample pictures where points fall, as PyTorch did up to 1.2; false: as it does since")                                             \
    X(model_extractor_bn, "model.extractor_bn", ENUM, "\"running\"", "-", "depth", 0, 0, "", "running|batch",                           \
      "statistics of a frozen extractor in training; validation takes the running ones")                                                  \
    X(model_target_pyramid, "model.target_pyramid", ENUM, "\"direct\"", "-", "depth", 0, 0, "", "direct|progressive",                   \
      "what is reconstructed at a smaller scale: the picture resized, or the next larger one of them")                                    \
    X(model_init_depth, "model.init_depth", PATH, "null", "-", "depth", 0, 4095, "", "",                                                  \
      "weights of the depth network, or of its ResNet alone, to start from")                                                              \
    X(model_init_pose, "model.init_pose", PATH, "null", "-", "depth", 0, 4095, "", "", "likewise, of the network that sees motion")       \
    X(model_init_extractor, "model.init_extractor", PATH, "null", "-", "depth", 0, 4095, "", "",                                          \
      "likewise, of the feature extractor: of a featdepth_autoencoder job, as a rule")                                                    \
    X(data_train_format, "data.train.format", ENUM, "\"coco\"", "-", "", 0, 0, "", "coco|voc|darknet|yolo|frames|kitti",                    \
      "COCO JSON; Pascal VOC's XML; darknet's lists; folders with a data.yaml, as ultralytics' programs have them; or of depth networks a folder of frames or of " \
      "KITTI's raw data with a list of the frames to train on")                                                                           \
    X(data_train_annotations, "data.train.annotations", PATH, "-", "-", "", 1, 4095, "", "",                                              \
      "annotations of the training split: the JSON file; voc: a list of ImageSets, or a folder of XML files; darknet: a .data file, or a list with data.names; " \
      "yolo: data.yaml, or a list or folder with data.names; frames, kitti: the list")                                                    \
    X(data_train_images, "data.train.images", PATH, "null", "-", "", 1, 4095, "", "",                                                     \
      "folder of its images, and of frames; required of these and of coco. voc: where Annotations and JPEGImages are, or the pictures of a folder of XML files; "  \
      "darknet, yolo: what relative paths are below; default of these three as the files lie")                                            \
    X(data_val_format, "data.val.format", ENUM, "\"coco\"", "-", "", 0, 0, "", "coco|voc|darknet|yolo|frames|kitti", "likewise")             \
    X(data_val_annotations, "data.val.annotations", PATH, "null", "-", "", 1, 4095, "", "",                                               \
      "likewise of the validation split; neither this nor data.val.fraction: no validation")                                              \
    X(data_val_images, "data.val.images", PATH, "null", "-", "", 1, 4095, "", "",                                                         \
      "likewise; of frames also of poses.txt, the camera's way where it is known")                                                        \
    X(data_val_fraction, "data.val.fraction", REAL, "null", "null", "!depth", 1e-300, 0.9, "", "",                                        \
      "instead of these three: validate on about this part of the training split and train on the rest; the content of a picture says where it goes, whatever its name") \
    X(data_names, "data.names", PATH, "null", "null", "!depth", 0, 4095, "", "",                                                          \
      "file with the name of a class a line, in the order of the network's outputs: of voc, darknet and yolo, instead of what they say; voc says nothing, and " \
      "takes the names in the training split, sorted")                                                                                    \
    X(data_voc_boxes, "data.voc_boxes", ENUM, "\"devkit\"", "\"devkit\"", "!depth", 0, 0, "", "devkit|corners",                             \
      "voc: xmin to ymax count pixels from 1 and the last one is inside, as in VOC's development kit; or they are corners as they stand, as many programs write them") \
    X(data_voc_difficult, "data.voc_difficult", ENUM, "\"ignore\"", "\"ignore\"", "!depth", 0, 0, "", "ignore|object",                     \
      "voc: what says that it is difficult is neither trained on nor scored, as a crowd of COCO's; or is like any other object")          \
    X(data_on_bad, "data.on_bad", ENUM, "\"error\"", "-", "", 0, 0, "", "error|skip",                                                     \
      "records that the network cannot use: refuse the data set, or skip and count them; doubtful ones stay and are told")                                                                        \
    X(data_sources, "data.sources", INTS, "[-1, 1]", "-", "depth", -1000, 1000, "frames", "",                                             \
      "at most three frames that a target is compared with, told from it: -1 is the one before. 0: none but data.stereo")                  \
    X(data_stereo, "data.stereo", BOOL, "false", "-", "depth", 0, 0, "", "", "compare with the other camera's picture, too")              \
    X(data_stride, "data.stride", INT, "1", "-", "depth", 1, 1000, "frames", "", "data.sources count so many frames as one")              \
    X(data_missing_neighbour, "data.missing_neighbour", ENUM, "\"drop\"", "-", "depth", 0, 0, "", "drop|repeat",                          \
      "a frame of data.train without one of its sources: leave it out, or use it in their place. In data.val such a frame is scored, without losses") \
    X(data_frame_pattern, "data.frame_pattern", STR, "null", "-", "depth", 1, 255, "", "",                                                \
      "file of a numbered frame, as frames/%06d.jpg; default as intrinsics.json says")                                                    \
    X(data_depth_pattern, "data.depth_pattern", STR, "null", "-", "depth", 1, 255, "", "",                                                \
      "likewise of its depth, a PNG of 16 bits, which at least one target of data.val has")                                               \
    X(data_depth_unit_m, "data.depth_unit_m", REAL, "null", "-", "depth", 1e-300, 1e3, "m", "", "what 1 is there; default as intrinsics.json says") \
    X(data_workers, "data.workers", INT, "null", "-", "", 1, 256, "threads", "",                                                          \
      "decoding threads of a rank; default run.threads / 4, beside a GPU run.threads - 1 and at most 16")                                 \
    X(data_aspect_groups, "data.aspect_groups", BOOL, "true", "-", "rcnn", 0, 0, "", "",                                                  \
      "the pictures of a shard are of one shape as far as an epoch has them: upright or not (d2), or of one of eight ratios (tv)")        \
    X(data_keep_empty, "data.keep_empty", BOOL, "false", "-", "rcnn", 0, 0, "", "",                                                       \
      "train on images without an object too: all of them is background")                                                                 \
    X(data_augment_flip, "data.augment.flip", REAL, "0.5", "-", "", 0, 1, "prob", "", "mirror left-right")                                \
    X(data_augment_vflip, "data.augment.vflip", REAL, "0", "-", "yolo", 0, 1, "prob", "", "mirror top-bottom")                           \
    X(data_augment_jitter, "data.augment.jitter", REAL, "0.3", "-", "yolo", 0, 0.9, "", "", "aspect and placement jitter")               \
    X(data_augment_scale, "data.augment.scale", REAL, "0", "-", "yolo", 0, 0.9, "", "",                                                  \
      "zoom by 1 - scale .. 1 + scale, cropping what leaves the picture")                                                                 \
    X(data_augment_hue, "data.augment.hue", REAL, "0.1", "-", "yolo", 0, 0.5, "", "", "hue shift, of a full turn")                       \
    X(data_augment_saturation, "data.augment.saturation", REAL, "1.5", "-", "yolo", 1, 10, "x", "", "saturation is multiplied by 1/x .. x") \
    X(data_augment_exposure, "data.augment.exposure", REAL, "1.5", "-", "yolo", 1, 10, "x", "", "brightness is multiplied by 1/x .. x")  \
    X(data_augment_multiscale, "data.augment.multiscale", BOOL, "false", "-", "yolo", 0, 0, "", "", "new network size every 10 steps")   \
    X(data_augment_size_min, "data.augment.size_min", INT, "null", "-", "yolo", 32, 2048, "px", "",                                      \
      "of the longer side, the other keeps its ratio; default: model.size - 96, at least 32")                                             \
    X(data_augment_size_max, "data.augment.size_max", INT, "null", "-", "yolo", 32, 2048, "px", "",                                      \
      "likewise; default: model.size + 96, at most 2048")                                                                                 \
    X(data_augment_color_jitter, "data.augment.color_jitter", REALS, "[0.2, 0.2, 0.2, 0.1]", "-", "depth", 4, 4, "", "",                  \
      "brightness, contrast and saturation are multiplied by 1 - x .. 1 + x, hue is shifted by as much of a full turn")                   \
    X(data_augment_color_jitter_prob, "data.augment.color_jitter_prob", REAL, "0.5", "-", "depth", 0, 1, "prob", "",                      \
      "of that, with one draw for all frames of a sample")                                                                                \
    X(train_steps, "train.steps", INT, "null", "-", "", 1, 100000000, "steps", "", "optimizer steps; this or train.epochs")               \
    X(train_epochs, "train.epochs", REAL, "null", "~", "", 1e-300, 1e8, "epochs", "",                                                     \
      "passes over the training images; detctl submit counts them and sends train.steps, rounded up")                                     \
    X(train_batch, "train.batch", INT, "-", "-", "", 1, 65536, "images", "", "global batch: all ranks, all waves")                        \
    X(train_shards, "train.shards", INT, "null", "-", "", 1, 64, "shards", "",                                                            \
      "virtual ranks, a power of two that divides the batch; default: largest <= 8 with >= 4 images each; >= 1 of depth "     \
      "networks, and of R-CNN with model.freeze_bn or model.sync_bn")                                                                        \
    X(train_waves, "train.waves", INT, "1", "-", "", 1, 64, "waves", "",                                                                  \
      "parts in which a rank computes its shards, one after the other (darknet's subdivisions): saves memory, changes no bits")                                                         \
    X(train_seed, "train.seed", INT, "1", "-", "", 0, 9007199254740991, "", "", "of everything random")                                   \
    X(train_optimizer, "train.optimizer", ENUM, "\"sgd\"", "-", "", 0, 0, "", "sgd|adam|adamw",                                           \
      "momentum SGD; Adam; Adam with weight decay apart from the moments")                                                                \
    X(train_lr, "train.lr", REAL, "0.001", "-", "", 1e-300, 1e3, "", "", "learning rate after burn-in")                                   \
    X(train_momentum, "train.momentum", REAL, "0.9", "-", "", 0, 0.9999, "", "", "of sgd")                                                \
    X(train_nesterov, "train.nesterov", BOOL, "false", "false", "", 0, 0, "", "", "Nesterov's momentum, of sgd")                          \
    X(train_beta1, "train.beta1", REAL, "0.9", "0.9", "", 0, 0.9999, "", "", "decay of the mean of gradients, of adam and adamw")         \
    X(train_beta2, "train.beta2", REAL, "0.999", "0.999", "", 0, 0.999999, "", "", "decay of the mean of their squares")                  \
    X(train_eps, "train.eps", REAL, "1e-8", "1e-8", "", 1e-30, 1, "", "", "added to the root of that mean")                               \
    X(train_weight_decay, "train.weight_decay", REAL, "0.0005", "-", "", 0, 10, "", "",                                                           \
      "on convolution weights; of R-CNN on biases too, and with model.flavor tv on all that trains")                                      \
    X(train_burn_in, "train.burn_in", INT, "null", "-", "", 0, 100000000, "steps", "", "warm-up; default min(1000, steps/20)")            \
    X(train_warmup, "train.warmup", ENUM, "\"power\"", "\"power\"", "", 0, 0, "", "power|linear",                                         \
      "(t / burn_in) ^ burn_in_power of step t as darknet, or a line from train.warmup_factor to 1 over so many steps")                   \
    X(train_warmup_factor, "train.warmup_factor", REAL, "0.001", "0.001", "", 0, 1, "x", "", "where a linear warm-up begins")             \
    X(train_burn_in_power, "train.burn_in_power", REAL, "4", "-", "", 0.1, 10, "", "", "lr * (t / burn_in) ^ power")                      \
    X(train_schedule, "train.schedule", ENUM, "\"steps\"", "\"steps\"", "", 0, 0, "", "steps|cosine|poly|constant",                       \
      "how the rate falls after the warm-up: at train.lr_steps, to train.lr_end at the end of the job, or not at all")                    \
    X(train_lr_end, "train.lr_end", REAL, "0", "0", "", 0, 1, "x", "", "what cosine and poly fall to, as a factor of train.lr")           \
    X(train_poly_power, "train.poly_power", REAL, "0.9", "0.9", "", 0.1, 10, "", "", "poly: (1 - part done) ^ power")                     \
    X(train_lr_steps, "train.lr_steps", REALS, "[0.8, 0.9]", "-", "", 0, 64, "steps, or texts as \"2 epochs\"", "",                                                 \
      "steps from which on, or with train.warmup linear after which, the rate is scaled; below 1: fractions of train.steps")              \
    X(train_lr_scale, "train.lr_scale", REAL, "0.1", "-", "", 1e-300, 1, "x", "", "factor at each of train.lr_steps")                     \
    X(train_clip_norm, "train.clip_norm", REAL, "0", "-", "", 0, 1e9, "", "", "clip the norm of the whole gradient; 0: off")              \
    X(train_ema, "train.ema", REAL, "0", "0", "", 0, 0.99999, "", "",                                                                     \
      "decay of the moving average of the weights that is validated and saved; 0: none")                                                  \
    X(train_freeze, "train.freeze", STRS, "[]", "[]", "", 0, 64, "", "",                                                                   \
      "what does not train: names, with * and ? as in names of files, or layers by number, as 0-14, as detctl layers lists them; needs model.init")                     \
    X(train_class_weights, "train.class_weights", NUMBERS, "{}", "{}", "yolo rcnn", 1e-300, 1000, "x", "",                                 \
      "{category name: factor of its class loss}; those not named, and the background, have 1. It holds in training and validation")      \
    X(train_stop_after, "train.stop_after", INT, "0", "0", "", 0, 1000000, "validations", "",                                             \
      "end the job, completed, when so many validations in a row, of those by val.every, were no better than the best; 0: never")         \
    X(train_log_every, "train.log_every", INT, "10", "-", "", 1, 1000000, "steps", "",                                                    \
      "training loss is summed over so many steps and stored")                                                                            \
    X(val_every, "val.every", INT, "null", "-", "", 0, 100000000, "steps, or a text as \"2 epochs\"", "",                                                            \
      "validate after so many steps, and after the last; 0: never; default steps/10 where there is data.val")                             \
    X(val_batch, "val.batch", INT, "8", "-", "", 1, 4096, "images", "", "images of a validation shard")                                   \
    X(val_conf, "val.conf", REAL, "0.005", "-", "yolo rcnn", 0, 1, "score", "",                                                          \
      "detections below it are dropped; .005 is darknet's protocol, and .05 detectron2's: against 0 that costs up to a point of AP")      \
    X(val_nms, "val.nms", REAL, "0.45", "-", "yolo rcnn", 0, 1, "IoU", "", "per-class suppression")                                       \
    X(val_max_det, "val.max_det", INT, "100", "-", "yolo rcnn", 1, 10000, "boxes", "",                                                    \
      "detections kept of an image; above 100 AP and AR count so many of a class, where COCO counts 100, and AR300 is AR with 300")       \
    X(val_depth_crop, "val.depth_crop", ENUM, "null", "-", "depth", 0, 0, "", "none|garg|eigen",                                          \
      "part of a picture where depth is compared with measured depth, as Garg or as Eigen have it; default garg of kitti, else none")     \
    X(val_depth_least, "val.depth_least", REAL, "1e-3", "-", "depth", 1e-300, 1e6, "m", "",                                               \
      "measured depth up to it is left out, and predicted depth cut to it")                                                               \
    X(val_depth_cap, "val.depth_cap", REAL, "80", "-", "depth", 1e-300, 1e6, "m", "", "likewise from there on: 80, or 50")                \
    X(val_depth_scale, "val.depth_scale", ENUM, "null", "-", "depth", 0, 0, "", "median|factor",                                          \
      "metres of the network's unit: in each picture the median of measured over that of predicted depth, or val.depth_factor; "          \
      "default factor of kitti with data.stereo and where val.depth_factor is given, else median")                                        \
    X(val_depth_factor, "val.depth_factor", REAL, "null", "-", "depth", 1e-300, 1e9, "m", "",                                             \
      "with val.depth_scale factor; default 36 of kitti with data.stereo, the 0.54 m between its cameras over 0.015")                     \
    X(checkpoint_every, "checkpoint.every", INT, "null", "-", "", 0, 100000000, "steps, or a text as \"2 epochs\"", "",                                              \
      "0: only at the end; else besides after each validation that is the best so far; default: val.every, or steps/10 without validation")                                                           \
    X(checkpoint_keep, "checkpoint.keep", INT, "3", "-", "", 1, 1000, "", "",                                                             \
      "newest checkpoints kept, besides the best; of those written by word, at a pause or as the best so far as many, which take no other's place")          \
    X(checkpoint_best, "checkpoint.best", STR, "\"loss\"", "\"loss\"", "", 1, 63, "", "",                                               \
      "what the best validation is by, whose checkpoint is kept: loss, or a metric as detctl eval has it, as AP or AP50:cat")             \
    X(run_device, "run.device", ENUM, "\"auto\"", "*", "", 0, 0, "", "auto|cpu|cuda", "")                                                 \
    X(run_ranks, "run.ranks", INT, "1", "*", "", 1, 64, "processes", "", "changes no result on CPUs, nor on GPUs in tier world")          \
    X(run_ranks_per_gpu, "run.ranks_per_gpu", INT, "1", "*", "", 1, 8, "processes", "",                                                   \
      "ranks that share one GPU; more than 1 uses the shared-memory transport")                                                           \
    X(run_threads, "run.threads", INT, "null", "*", "", 1, 1024, "threads", "",                                                           \
      "CPU compute threads of a rank; default max(1, slots/ranks)")                                                                       \
    X(run_isa, "run.isa", ENUM, "\"auto\"", "*", "", 0, 0, "", "auto|avx512|avx2|generic",                                                   \
      "CPU build; all give the same bits. A build that is named does not use AMX; generic, for comparisons, is tens of times slower")     \
    X(run_deterministic, "run.deterministic", ENUM, "null", "*", "", 0, 0, "", "off|rerun|world", "tier; default: the node's")            \
    X(run_precision, "run.precision", ENUM, "\"fp32\"", "*", "", 0, 0, "", "auto|fp32|tf32|bf16",                                         \
      "of activations and products; sums, weights and their gradients are fp32. tf32 needs a GPU; on CPUs bf16 halves the memory of "     \
      "activations and, without AMX, takes longer; auto: bf16 on GPUs and CPUs with AMX, else fp32, when it is submitted")                \
    X(run_restarts, "run.restarts", INT, "3", "*", "", 0, 1000, "times", "",                                                              \
      "consecutive failures without a newer checkpoint that are retried")                                                                 \
    X(run_on_hang, "run.on_hang", ENUM, "\"restart\"", "*", "", 0, 0, "", "restart|fail", "what a hang verdict does")                     \
    X(run_on_end, "run.on_end", STR, "null", "*", "", 1, 4095, "", "",                                                                    \
      "a shell command that hears, as a JSON line on its input, of the end, a failure or a hang; it has 60 s. What is cancelled while it waits, or is paused, it is not told of")                            \
    X(run_after, "run.after", INT, "null", "*", "", 1, 9007199254740991, "", "", "the job that has to end before this one starts")         \
    X(run_after_ok, "run.after_ok", BOOL, "false", "*", "", 0, 0, "", "",                                                                  \
      "it has to complete: where it fails or is cancelled, so is this one")                                                               \
    X(run_time_limit, "run.time_limit", REAL, "0", "*", "", 0, 1e9, "s", "",                                                              \
      "it writes a checkpoint and ends, cancelled, when it ran so long in all; pauses do not count, and it counts anew after extend; 0: no limit")                              \
    X(run_priority, "run.priority", INT, "0", "*", "", -1000, 1000, "", "", "higher runs first")                                          \
    X(run_stress, "errand.stress", INT, "null", "*", "", 0, 9007199254740991, "", "",                                                        \
      "seed that forces what is else chance: contents and places of memory, order of pictures and ranks; shows that no bit depends on it") \
    X(run_env, "run.env", MAP, "{}", "*", "", 0, 64, "", "", "environment variables of the ranks")                                        \
    X(run_evidence, "run.evidence", ENUM, "\"tensors\"", "*", "", 0, 0, "", "off|losses|tensors",                                         \
      "what is kept of each step, to be compared with another run: hashes of data, losses and state; of gradients and weights too, "      \
      "but not of averages (train.ema), which the hashes of a checkpoint's files protect")                                                \
    X(run_on_corruption, "run.on_corruption", ENUM, "\"restart\"", "*", "", 0, 0, "", "restart|fail",                                     \
      "what a rank with other weights than the rest does to the job: from the last checkpoint again, or fail")                            \
    X(run_data_hash, "errand.data_hash", STR, "null", "*", "", 32, 32, "", "",                                                               \
      "refuse a training set of another hash, 32 hexadecimal digits")                                                                     \
    X(verify_evidence, "errand.evidence", PATH, "null", "*", "", 0, 4095, "", "",                                                         \
      "folder of another run of this job: train its steps again, compare each with its evidence, save nothing")                           \
    X(verify_from, "errand.from", INT, "null", "*", "", 0, 100000000, "step", "",                                                         \
      "begin at the newest of its checkpoints at or before that step; default 0: from scratch")                                           \
    X(verify_to, "errand.to", INT, "null", "*", "", 1, 100000000, "step", "", "end after that step; default: train.steps")                \
    X(eval_run, "errand.run", PATH, "null", "*", "", 0, 4095, "", "",                                                                       \
      "folder of another job with these keys: validate a checkpoint of its on data.val, which may be another set, and train nothing")     \
    X(eval_step, "errand.step", INT, "null", "*", "", 1, 100000000, "step", "", "of that checkpoint")                                       \
    X(eval_job, "errand.job", INT, "null", "*", "", 1, 9007199254740991, "", "", "the number of that job, among whose results these are then listed") \
    X(eval_set, "errand.set", STR, "null", "*", "", 1, 64, "", "", "under this name of the set")
/* clang-format on */

struct jobspec_list {
    int n; /* INTS: 0 when null */
    double v[JOB_MAX_LIST];
};
struct jobspec_size {
    int64_t w, h;
};

/* Members have the C type of their key: STR PATH ENUM: char * (NULL when null); INT: int64_t (-1 when null); REAL:
 * double (NAN when null); BOOL: bool; REALS INTS: struct jobspec_list; MAP: a json_t pointer (object of strings); STRS:
 * a json_t pointer (array of strings); NUMBERS: a json_t pointer (object of reals); SIZE: struct jobspec_size (w -1
 * when null). */
struct jobspec {
#define JOB_TYPE_STR             char *
#define JOB_TYPE_PATH            char *
#define JOB_TYPE_ENUM            char *
#define JOB_TYPE_INT             int64_t
#define JOB_TYPE_REAL            double
#define JOB_TYPE_BOOL            bool
#define JOB_TYPE_REALS           struct jobspec_list
#define JOB_TYPE_MAP             json_t *
#define JOB_TYPE_SIZE            struct jobspec_size
#define JOB_TYPE_INTS            struct jobspec_list
#define JOB_TYPE_STRS            json_t *
#define JOB_TYPE_NUMBERS         json_t *
#define X(field, key, type, ...) JOB_TYPE_##type field;
    JOB_KEYS(X)
#undef X
    const struct job_preset *preset; /* of model.preset; NULL with model.cfg */
    const struct job_family *family; /* of the model */
};

/* Orders of our own programs to a job. The keys in this object are in requests and in spec.json, but not in the job
 * file, man page or schema. */
#define JOB_ERRAND "errand"
/* True for "errand", "errand.from" and "errand.from=3". */
bool job_word_is_errand(const char *word);

/* Checks `root` (borrowed; the object form of a job file) against the table and the rules between keys, and fills in
 * defaults (a null default stays null unless a rule computes it). Errors name the path: field "train.lr", message
 * "train.lr: must be > 0, is -1". Caller frees with jobspec_free(). */
int jobspec_parse(const json_t *root, struct jobspec **ret_spec, struct err *err);
/* The same for an object that jobspec_json() once gave, perhaps in an older version: a missing key takes its neutral
 * value. */
int jobspec_parse_stored(const json_t *root, struct jobspec **ret_spec, struct err *err);
/* One of the two above with other networks than job_presets; `presets` must outlive the spec. */
int jobspec_parse_for(const struct job_presets *presets, const json_t *root, bool stored, struct jobspec **ret_spec, struct err *err);
/* For a caller that counts images: like jobspec_parse_for() of a new job, but train.epochs may stand for train.steps.
 * train_steps is then -1, and values that follow from it are neither checked nor filled in. A key with a text such as
 * "2 epochs" counts as absent. */
int jobspec_parse_uncounted(const struct job_presets *presets, const json_t *root, struct jobspec **ret_spec, struct err *err);
void jobspec_free(struct jobspec *s);
/* The nested JSON form, as in spec.json: every default is filled in, and the keys of the family are in table order. New
 * reference. */
json_t *jobspec_json(const struct jobspec *s);
/* The keys that decide the results: the same form without keys at their neutral value, and without the key `but` (its
 * path, or NULL). NULL: out of memory. Checkpoints keep a hash of it, so the result for a job must never change. */
json_t *jobspec_deciding(const struct jobspec *s, const char *but);
/* The same without the keys of type PATH. It does not depend on the places of files; their contents are hashed
 * elsewhere. */
json_t *jobspec_portable(const struct jobspec *s);
/* Reads a file of at most JOB_MAX_BYTES, in which `//` begins a comment; syntax errors name file, line and column;
 * duplicate keys are errors. */
int jobspec_read(const char *path, json_t **ret_root, struct err *err);
/* Applies "train.lr=0.01" to the nested object. The value is JSON, or otherwise a string. */
int jobspec_override(json_t *root, const char *assignment, struct err *err);
/* Whether keys of the nested object give steps in another unit: train.epochs, or a text such as "2 epochs" or "100
 * steps". *ret_epochs: images have to be counted for that. */
bool jobspec_has_units(const json_t *root, bool *ret_epochs);
/* Turns all of them into numbers of steps, and train.epochs into train.steps; only that conversion writes *ret_steps.
 * s: the result of jobspec_parse_uncounted() for the object. images: number of images of the training split after its
 * filters, at least 1. ERR_INPUT: more steps than a job may have. */
int jobspec_count_steps(json_t *root, const struct jobspec *s, int64_t images, int64_t *ret_steps, struct err *err);
/* Whether a job with s->train_steps was in the same state after `step` as it would have been with more steps. Rates and
 * sizes of pictures may depend on the number of steps, and the last step may have cut a log window short, or have
 * validated out of turn. */
bool jobspec_on_the_way(const struct jobspec *s, int64_t step);
/* Says why the job was not in that state after its last step: an error that names the key. */
int jobspec_not_on_the_way(const struct jobspec *s, struct err *err);
/* Puts more steps into an object that jobspec_json() once gave; all other keys stay. *ret_was is the job as it was
 * before; the caller frees it. ERR_INPUT: `steps` is not more than before. */
int jobspec_extend(json_t *root, int64_t steps, struct jobspec **ret_was, struct err *err);
/* Makes PATH values absolute, relative to `dir`, or to $HOME after `~/`. job:ID of model.init and the like stays. */
int jobspec_absolute(json_t *root, const char *dir, struct err *err);
/* For a receiver without a folder to resolve against: every PATH must be absolute; the error names the key. */
int jobspec_require_absolute(const struct jobspec *s, struct err *err);
/* Walks over the paths that are given. Begins with *i = 0 and advances *i. False: there are no more paths. Borrowed
 * from s. */
bool jobspec_next_path(const struct jobspec *s, size_t *i, const char **ret_key, const char **ret_path);
/* Files with weights that training starts from: model.init and the like. Borrowed from s. */
enum { JOB_MAX_INITS = 4 };
struct jobspec_init {
    const char *key, *path;
};
/* Lists the given ones in table order; returns their number. */
int jobspec_inits(const struct jobspec *s, struct jobspec_init ret[JOB_MAX_INITS]);
/* Removes them, for a caller that has loaded the weights already. */
void jobspec_forget_inits(struct jobspec *s);
/* Whether validations of such a job have the metric of checkpoint.best, as far as this is known without its data. Not
 * to be called for a stored job. */
int jobspec_check_best(const struct jobspec *s, struct err *err);
/* Lists the keys that have no effect in this job although their value is not the default, each with the condition under
 * which it has an effect; texts are static. Returns their number. The submitter sees this list. jobspec_parse() refuses
 * further keys without effect, if the user must have meant another key. */
enum { JOB_MAX_IDLE = 24 };
struct jobspec_idle {
    const char *key, *needs;
};
int jobspec_idle(const struct jobspec *s, struct jobspec_idle ret[JOB_MAX_IDLE]);
/* The default number of shards for a batch, with at least shard_images images in each shard. Pure. */
int jobspec_default_shards(int64_t batch, int shard_images);
/* Default number of steps between validations, and between checkpoints without val.every and checkpoint.every: a tenth
 * of all steps. */
int64_t jobspec_default_every(int64_t steps);
/* The preset of a job, which may be incomplete. NULL: it names no preset of job_presets. */
const struct job_preset *jobspec_preset(const json_t *root);
/* Writes the `--help-keys` text from the table: of the keys of a preset, with its defaults, or of all keys (preset NULL). Returns -EIO if the text
 * was not written completely. */
int jobspec_write_help(FILE *out, const struct job_preset *preset);
