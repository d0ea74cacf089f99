/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec.h - the job file: one table of keys makes the parser, the
 * errors, schema/job.schema.json and the man page. */
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
enum { JOB_MAX_HEAD_CHANNELS = 256 }; /* of a head of attention */
/* Maximum number of pictures that a frame is compared with, of data.sources and data.stereo. */
enum { JOB_MAX_SOURCES = 3 };

/* A key of the job file.
 *   field    member of struct jobspec    key   its place in the JSON
 *   type     STR PATH ENUM INT REAL BOOL REALS (list of numbers) MAP (object of strings) SIZE (a whole number: both
 *            sides; or a list of two) INTS (a whole number, or a list of them) STRS (a text, or a list of them) NUMBERS
 *            (object of numbers) ARGS (list of texts, as they are)
 *   def      default as JSON text; "null" = computed by jobspec_finish() or absent, as the help says; "-" = required
 *   neutral  the value, as JSON text, that means "as before this key existed". jobspec_deciding() leaves out a key with
 *            this value, so that checkpoints older than the key stay good. A stored job without the key has this value,
 *            independent of the default.
 *            "-" = always given: the keys of the first release; "*" = never given, the key decides no result; "*code"
 *            = the same, and the value is code that the job runs or loads: only the job's owner may see or reuse it;
 *            "~"
 *            = neither given nor stored: the submitter turns the key into another one
 *   families the families of models (presets.h) that have the key, separated by blanks; "" = all, "!rcnn" = all but
 *            that one. For a model of another family the key is an error, and neither jobspec_json() nor
 *            jobspec_deciding() gives it. A program counts as the family `program`, which has no keys of model, data,
 *            train and val. A family may have its own default: job_defaults of presets.h
 *   min,max  range of numbers (INTS NUMBERS: of each), or length of strings and lists (STRS: number of texts) (REAL: a
 *            min written as 1e-300 means "> 0")
 *   unit     "" if there is no unit        values   ENUM: allowed words, separated by '|'
 *   Types: PATHs are made absolute by the client, relative to the job file. */
/* clang-format off */
#define JOB_KEYS(X)                                                                                                                       \
    X(name, "name", STR, "\"job\"", "*", "", 1, 64, "", "", "Name of the job, shown in lists")                                            \
    X(model_preset, "model.preset", ENUM, "null", "-", "", 0, 0, "", JOB_PRESET_WORDS,                                                    \
      "Network, by name; a job has either model.preset or model.cfg")                                                                     \
    X(model_cfg, "model.cfg", PATH, "null", "-", "yolo", 0, 4095, "", "",                                                                 \
      "Darknet .cfg file of a network of the YOLOv3 family, in place of model.preset")                                                    \
    X(model_size, "model.size", SIZE, "null", "-", "!rcnn sparse", 32, 2048, "px", "",                                                    \
      "Size of the network's input: the side of a square or [width, height], in multiples of 32. Default: from the preset or .cfg; "      \
      "[640, 192] for depth networks, which need at least 64 each way, and 96 with an autoencoder. Larger inputs show smaller objects "   \
      "and take more time and memory")                                                                                                    \
    X(model_width, "model.width", REAL, "1.0", "-", "yolo rcnn sparse depth", 1e-2, 8, "x", "",                                           \
      "Factor for the channels of all hidden layers of a preset; below 1 the network is smaller and faster")                              \
    X(model_init, "model.init", PATH, "null", "-", "", 0, 4095, "", "",                                                                   \
      "Weights to start from: a .safetensors file, for yolo also a darknet .weights file, or a checkpoint of another job: job:12 or "     \
      "job:12@best, job:12@last or job:12@STEP, as it is at the time of submission")                                                      \
    X(model_load_until, "model.load_until", INT, "null", "-", "yolo", 0, 10000, "layer", "",                                              \
      "Number of the layer before which loading from model.init stops; set it to take only a backbone from the file")                     \
    X(model_sync_bn, "model.sync_bn", BOOL, "false", "-", "", 0, 0, "", "",                                                               \
      "Compute batch statistics over all shards of a step instead of over each shard; useful with few images per shard")                  \
    X(model_freeze_bn, "model.freeze_bn", BOOL, "false", "-", "", 0, 0, "", "",                                                           \
      "Normalise with the running statistics, which stay as loaded; useful when a pretrained network is trained with small batches")      \
    X(model_bn_momentum, "model.bn_momentum", REAL, "0.03", "-", "", 1e-300, 1, "", "",                                                   \
      "Weight of a step in the running statistics of normalisations")                                                                     \
    X(model_obj_prior, "model.obj_prior", REAL, "0.01", "-", "yolo", 0, 0.5, "", "",                                                      \
      "Initial objectness of new heads; 0 leaves the biases at 0")                                                                        \
    X(model_anchor_sizes, "model.anchor_sizes", REALS, "[]", "[]", "yolo", 0, 64, "px", "",                                               \
      "Width and height of each anchor at the network's input, smallest first, as detctl anchors prints them; default: the anchors of "   \
      "the network")                                                                                                                      \
    X(model_ignore_thresh, "model.ignore_thresh", REAL, "null", "-", "yolo", 0, 1, "IoU", "",                                             \
      "IoU with an object above which a prediction is not trained as background; default: from the .cfg, else 0.7")                       \
    X(model_assign_iou_thresh, "model.assign_iou_thresh", REAL, "null", "-", "yolo", 0, 1, "IoU", "",                                     \
      "IoU with an object above which further anchors are positive too; 1: only the best anchor is. Default: iou_thresh of the .cfg, "    \
      "else 1")                                                                                                                           \
    X(model_box_gain, "model.box_gain", REAL, "1.0", "-", "yolo", 0, 1e6, "x", "", "Weight of the box term of the loss")                  \
    X(model_obj_gain, "model.obj_gain", REAL, "1.0", "-", "yolo", 0, 1e6, "x", "", "Weight of the objectness term of positive anchors")   \
    X(model_noobj_gain, "model.noobj_gain", REAL, "1.0", "-", "yolo", 0, 1e6, "x", "",                                                    \
      "Weight of the objectness term of negative anchors")                                                                                \
    X(model_cls_gain, "model.cls_gain", REAL, "1.0", "-", "yolo sparse", 0, 1e6, "x", "",                                                 \
      "Weight of the class term of the loss, and for Sparse R-CNN in the matching, too")                                                  \
    X(model_flavor, "model.flavor", ENUM, "\"d2\"", "-", "rcnn", 0, 0, "", "d2|tv",                                                       \
      "Details of the model: d2 as in detectron2; tv as in torchvision 0.15 and newer (pictures are resized to bytes). Choose the "       \
      "program that the weights of model.init come from")                                                                                 \
    X(model_backbone, "model.backbone", ENUM, "null", "-", "rcnn sparse", 0, 0, "", "msra|torchvision",                                   \
      "ImageNet weights that fit the backbone: place of strides, order and scale of colours; default: torchvision for Sparse R-CNN and "  \
      "with model.flavor tv, else msra")                                                                                                  \
    X(model_freeze_at, "model.freeze_at", INT, "0", "-", "rcnn sparse", 0, 5, "stages", "",                                               \
      "Number of stages of the backbone, stem first, that do not train; above 0 it needs model.init")                                     \
    X(model_bn_eps, "model.bn_eps", REAL, "1e-5", "-", "rcnn sparse", 0, 1, "", "",                                                       \
      "Number added to the variances of normalisations; 0 for torchvision's COCO_V1 weights")                                             \
    X(model_fpn_channels, "model.fpn_channels", INT, "256", "-", "rcnn sparse", 8, 4096, "", "",                                          \
      "Channels of the feature pyramid, and of the RPN or the proposals; a multiple of 8")                                                \
    X(model_head_channels, "model.head_channels", INT, "1024", "-", "rcnn", 1, 16384, "", "",                                             \
      "Channels of both hidden layers of the box head")                                                                                   \
    X(model_mask_channels, "model.mask_channels", INT, "256", "-", "rcnn", 1, 4096, "", "", "Channels of the mask head")                  \
    X(model_anchors, "model.anchors", REALS, "[32, 64, 128, 256, 512]", "-", "rcnn", 5, 5, "px", "",                                      \
      "Sides of the anchors of the pyramid levels P2 to P6")                                                                              \
    X(model_rpn_batch, "model.rpn_batch", INT, "256", "-", "rcnn", 1, 4096, "anchors", "",                                                \
      "Anchors sampled per image for the RPN's losses")                                                                                   \
    X(model_rpn_positive, "model.rpn_positive", REAL, "0.5", "-", "rcnn", 0, 1, "", "",                                                   \
      "Maximum fraction of positive anchors among the model.rpn_batch sampled per image")                                                 \
    X(model_rpn_pre_nms, "model.rpn_pre_nms", INT, "2000", "-", "rcnn", 1, 8192, "boxes", "",                                             \
      "Best boxes of a pyramid level that enter suppression, in training")                                                                \
    X(model_rpn_pre_nms_val, "model.rpn_pre_nms_val", INT, "1000", "-", "rcnn", 1, 8192, "boxes", "",                                     \
      "Best boxes of a pyramid level that enter suppression, in validation")                                                              \
    X(model_rpn_post_nms, "model.rpn_post_nms", INT, "null", "-", "rcnn", 1, 8192, "boxes", "",                                           \
      "Proposals kept per image, in training; default: 2000 with model.flavor tv, else 1000")                                             \
    X(model_rpn_post_nms_val, "model.rpn_post_nms_val", INT, "1000", "-", "rcnn", 1, 8192, "boxes", "",                                   \
      "Proposals kept per image, in validation")                                                                                          \
    X(model_rpn_nms, "model.rpn_nms", REAL, "0.7", "-", "rcnn", 0, 1, "IoU", "",                                                          \
      "IoU above which a box suppresses worse boxes of its pyramid level in the RPN")                                                     \
    X(model_roi_batch, "model.roi_batch", INT, "512", "-", "rcnn", 1, 4096, "boxes", "",                                                  \
      "Boxes sampled per image for the losses of the heads")                                                                              \
    X(model_roi_positive, "model.roi_positive", REAL, "0.25", "-", "rcnn", 0, 1, "", "",                                                  \
      "Maximum fraction of foreground among the model.roi_batch boxes sampled per image")                                                 \
    X(model_mask_rois, "model.mask_rois", INT, "null", "-", "rcnn", 1, 4096, "boxes", "",                                                 \
      "Maximum number of foreground boxes per image that train the mask head; default: all. Lower it to save memory")                     \
    X(model_mask_pool, "model.mask_pool", INT, "14", "14", "rcnn", 4, 32, "cells", "",                                                    \
      "Side of the input of the mask head for each region; its masks have twice as many cells a side. More cells draw finer outlines, "   \
      "and the cost grows with their square")                                                                                             \
    X(model_min_size, "model.min_size", INTS, "null", "-", "rcnn sparse", 1, 4096, "px", "",                                              \
      "Shorter side of pictures: one number, or a list from which each shard of a step draws one; validation takes the last of the "      \
      "list. Default: 640, 672 .. 800, or 800 with model.flavor tv; 480, 512 .. 800 for Sparse R-CNN")                                    \
    X(model_max_size, "model.max_size", INT, "1333", "-", "rcnn sparse", 1, 8192, "px", "",                                               \
      "Maximum of the longer side of pictures; the shorter side is reduced where needed")                                                 \
    X(model_size_divisible, "model.size_divisible", INT, "32", "-", "rcnn sparse", 32, 1024, "px", "",                                    \
      "The sides of a canvas are rounded up to multiples of this number, a multiple of 32")                                               \
    X(model_proposals, "model.proposals", INT, "100", "-", "sparse", 1, 1000, "boxes", "",                                                \
      "Learned boxes that every picture begins with, and the most objects that can be found in one; 300 is usual with "                   \
      "data.augment.crop. Raise it for pictures with more objects")                                                                       \
    X(model_proposal_init, "model.proposal_init", ENUM, "\"image\"", "-", "sparse", 0, 0, "", "image|grid",                               \
      "Initial place of the proposals. image: each is the whole picture; grid: they lie on a grid, which learns sooner from few "         \
      "pictures")                                                                                                                         \
    X(model_stages, "model.stages", INT, "6", "-", "sparse", 1, 12, "heads", "",                                                          \
      "Number of heads in a row. Each head moves the boxes of the head before it. All heads cost the same; fewer are faster and less "    \
      "exact")                                                                                                                            \
    X(model_heads, "model.heads", INT, "8", "-", "sparse", 1, 64, "heads", "",                                                            \
      "Heads of the attention among the proposals of a picture. The number must divide model.fpn_channels, into at most 256 channels "    \
      "each")                                                                                                                             \
    X(model_dynamic_channels, "model.dynamic_channels", INT, "64", "-", "sparse", 8, 512, "", "",                                         \
      "Inner channels, a multiple of 8, of the layers whose weights follow from each proposal; fewer save memory and time")               \
    X(model_ffn_channels, "model.ffn_channels", INT, "2048", "-", "sparse", 8, 16384, "", "",                                             \
      "Hidden channels of the feed-forward layers of a stage; fewer make a smaller network")                                              \
    X(model_cls_layers, "model.cls_layers", INT, "1", "-", "sparse", 0, 8, "layers", "",                                                  \
      "Hidden layers before the class scores of a stage; change it only with weights that were trained so, or for trials")                \
    X(model_reg_layers, "model.reg_layers", INT, "3", "-", "sparse", 0, 8, "layers", "",                                                  \
      "Hidden layers before the box deltas of a stage; change it only with weights that were trained so, or for trials")                  \
    X(model_cls_prior, "model.cls_prior", REAL, "0.01", "-", "sparse", 1e-300, 0.999999, "", "",                                          \
      "Score below 1 that every class of a proposal begins with; raise it where most proposals cover objects")                            \
    X(model_delta_clamp, "model.delta_clamp", REAL, "8.740336742730447", "-", "sparse", 0.1, 20, "", "",                                  \
      "Limit of the logarithm of the growth of a box side in a stage. Set it to 4.135166556742356, which is ln(1000/16), with "           \
      "model.delta_floor for weights of mmdetection")                                                                                     \
    X(model_delta_floor, "model.delta_floor", BOOL, "false", "-", "sparse", 0, 0, "", "",                                                 \
      "Limit the shrinking of a box side by model.delta_clamp, too, as in mmdetection")                                                   \
    X(model_focal_alpha, "model.focal_alpha", REAL, "0.25", "-", "sparse", 0, 1, "", "",                                                  \
      "Weight of objects in the class loss, where background has 1 - alpha; raise it if too few objects are found")                       \
    X(model_focal_gamma, "model.focal_gamma", REAL, "2", "-", "sparse", 0, 5, "", "",                                                     \
      "Exponent by which easy cases count less in the class loss; 0: all cases count alike")                                              \
    X(model_l1_gain, "model.l1_gain", REAL, "5", "-", "sparse", 0, 1e6, "x", "",                                                          \
      "Weight of the difference of box corners in the loss and in the matching")                                                          \
    X(model_giou_gain, "model.giou_gain", REAL, "2", "-", "sparse", 0, 1e6, "x", "",                                                      \
      "Weight of the box overlap, as generalised IoU, in the loss and in the matching")                                                   \
    X(model_pose_layers, "model.pose_layers", INT, "18", "-", "depth", 18, 101, "layers", "",                                             \
      "Layers of the ResNet of the pose network, which sees motion: 18, 34, 50 or 101")                                                   \
    X(model_decoder, "model.decoder", ENUM, "\"crp\"", "-", "depth", 0, 0, "", "crp|upconv",                                              \
      "Decoder of the depth network: crp is FeatDepth's chained residual pooling; upconv is monodepth2's, with maps twice as large")      \
    X(model_min_depth, "model.min_depth", REAL, "0.1", "-", "depth", 1e-6, 1e6, "", "",                                                   \
      "Nearest depth that the network can predict, in its own unit")                                                                      \
    X(model_max_depth, "model.max_depth", REAL, "100", "-", "depth", 1e-6, 1e6, "", "",                                                   \
      "Farthest depth that the network can predict, in its own unit")                                                                     \
    X(model_pose_size, "model.pose_size", SIZE, "null", "-", "depth", 32, 2048, "px", "",                                                 \
      "Size of the input of the pose network, in the form of model.size; default: model.size")                                            \
    X(model_ssim_weight, "model.ssim_weight", REAL, "0.85", "-", "depth", 0, 1, "", "",                                                   \
      "Weight of structural similarity in the photometric error; the rest of the weight is that of the difference")                       \
    X(model_perception, "model.perception", REAL, "1e-3", "-", "depth", 0, 1e6, "x", "", "Weight of the feature-metric term of the loss") \
    X(model_smoothness, "model.smoothness", REAL, "1e-3", "-", "depth", 0, 1e6, "x", "", "Weight of the smoothness terms of the loss")    \
    X(model_dis, "model.dis", REAL, "1e-3", "-", "depth", 0, 1e6, "x", "", "Weight of the reward for first differences of the features")  \
    X(model_cvt, "model.cvt", REAL, "1e-3", "-", "depth", 0, 1e6, "x", "", "Weight of the term of the features' second differences")      \
    X(model_automask, "model.automask", ENUM, "\"auto\"", "-", "depth", 0, 0, "", "auto|on|off",                                          \
      "Leave out pixels that a source shows better without motion; auto: on without data.stereo")                                         \
    X(model_automask_noise, "model.automask_noise", ENUM, "\"uniform\"", "-", "depth", 0, 0, "", "uniform|normal|none",                   \
      "Noise of deviation 1e-5 that breaks ties of model.automask")                                                                       \
    X(model_disp_norm, "model.disp_norm", ENUM, "\"auto\"", "-", "depth", 0, 0, "", "auto|on|off",                                        \
      "Divide disparity by its mean in the smoothness terms; auto: on without data.stereo")                                               \
    X(model_align_corners, "model.align_corners", BOOL, "true", "-", "depth", 0, 0, "", "",                                               \
      "Sample pictures with aligned corners, as PyTorch did up to 1.2; false: as PyTorch does since")                                     \
    X(model_extractor_bn, "model.extractor_bn", ENUM, "\"running\"", "-", "depth", 0, 0, "", "running|batch",                             \
      "Statistics by which a frozen feature extractor normalises in training; validation always takes the running ones")                  \
    X(model_target_pyramid, "model.target_pyramid", ENUM, "\"direct\"", "-", "depth", 0, 0, "", "direct|progressive",                     \
      "Target that is reconstructed at a smaller scale: direct is the picture resized, progressive is the next larger scale resized")     \
    X(model_init_depth, "model.init_depth", PATH, "null", "-", "depth", 0, 4095, "", "",                                                  \
      "Weights to start from, of the depth network or of its ResNet alone, in the forms of model.init")                                   \
    X(model_init_pose, "model.init_pose", PATH, "null", "-", "depth", 0, 4095, "", "",                                                    \
      "Weights to start from, of the pose network or of its ResNet alone, in the forms of model.init")                                    \
    X(model_init_extractor, "model.init_extractor", PATH, "null", "-", "depth", 0, 4095, "", "",                                          \
      "Weights of the feature extractor, in the forms of model.init; usually from a featdepth_autoencoder job")                           \
    X(data_train_format, "data.train.format", ENUM, "\"coco\"", "-", "", 0, 0, "", "coco|voc|darknet|yolo|frames|kitti",                  \
      "Form of the training split: coco is COCO JSON; voc is Pascal VOC's XML; darknet is darknet's lists; yolo is folders with a "       \
      "data.yaml for ultralytics' programs. For depth networks: frames is a folder of frames, kitti is KITTI's raw data, both with a "    \
      "list of the frames to train on")                                                                                                   \
    X(data_train_annotations, "data.train.annotations", PATH, "-", "-", "", 1, 4095, "", "",                                              \
      "Annotations of the training split. coco: the JSON file; voc: a list of ImageSets, or a folder of XML files; darknet: a .data "     \
      "file, or a list with data.names; yolo: data.yaml, or a list or folder with data.names; frames, kitti: the list of frames")         \
    X(data_train_images, "data.train.images", PATH, "null", "-", "", 1, 4095, "", "",                                                     \
      "Folder of the images or frames of the training split; required for coco, frames and kitti. voc: the folder of Annotations and "    \
      "JPEGImages, or the pictures of a folder of XML files; darknet, yolo: the folder that relative paths are below. Default for "       \
      "voc, darknet and yolo: found from the annotations")                                                                                \
    X(data_val_format, "data.val.format", ENUM, "\"coco\"", "-", "", 0, 0, "", "coco|voc|darknet|yolo|frames|kitti",                      \
      "Form of the validation split, with the values of data.train.format")                                                               \
    X(data_val_annotations, "data.val.annotations", PATH, "null", "-", "", 1, 4095, "", "",                                               \
      "Annotations of the validation split, in the forms of data.train.annotations. Without this key and data.val.fraction there is "     \
      "no validation")                                                                                                                    \
    X(data_val_images, "data.val.images", PATH, "null", "-", "", 1, 4095, "", "",                                                         \
      "Folder of the images or frames of the validation split, in the forms of data.train.images; for frames also of poses.txt, the "     \
      "camera's way where it is known")                                                                                                   \
    X(data_val_fraction, "data.val.fraction", REAL, "null", "null", "!depth", 1e-300, 0.9, "", "",                                        \
      "Fraction of the training split, about, that is validated on instead of trained on, in place of the other keys of data.val. The "   \
      "content of a picture decides on which side it is, not its name")                                                                   \
    X(data_names, "data.names", PATH, "null", "null", "!depth", 0, 4095, "", "",                                                          \
      "File with the name of one class a line, in the order of the network's outputs, for voc, darknet and yolo. It replaces the "        \
      "names that the data set gives; voc gives no names, and takes those of the training split, sorted, by default")                     \
    X(data_voc_boxes, "data.voc_boxes", ENUM, "\"devkit\"", "\"devkit\"", "!depth", 0, 0, "", "devkit|corners",                           \
      "voc: meaning of xmin to ymax. devkit: pixels counted from 1, the last one inside, as in VOC's development kit; corners: "          \
      "corners as they stand, as many programs write them")                                                                               \
    X(data_voc_difficult, "data.voc_difficult", ENUM, "\"ignore\"", "\"ignore\"", "!depth", 0, 0, "", "ignore|object",                    \
      "voc: objects marked as difficult. ignore: neither trained on nor scored, like a crowd of COCO's; object: like any other object")   \
    X(data_on_bad, "data.on_bad", ENUM, "\"error\"", "-", "", 0, 0, "", "error|skip",                                                     \
      "Records that the network cannot use: error refuses the data set, skip leaves them out and counts them. Doubtful records are "      \
      "kept and reported")                                                                                                                \
    X(data_sources, "data.sources", INTS, "[-1, 1]", "-", "depth", -1000, 1000, "frames", "",                                             \
      "Frames that a target is compared with, at most three, as offsets from it: -1 is the one before. 0: only the other camera's "       \
      "frame, by data.stereo")                                                                                                            \
    X(data_stereo, "data.stereo", BOOL, "false", "-", "depth", 0, 0, "", "", "Compare a target with the other camera's picture, too")     \
    X(data_stride, "data.stride", INT, "1", "-", "depth", 1, 1000, "frames", "",                                                          \
      "Frames that an offset of 1 in data.sources stands for; raise it where neighbouring frames hardly differ")                          \
    X(data_missing_neighbour, "data.missing_neighbour", ENUM, "\"drop\"", "-", "depth", 0, 0, "", "drop|repeat",                          \
      "Frames of data.train that lack one of their sources: drop leaves them out, repeat uses the frame itself as the source. In "        \
      "data.val they are scored, without losses")                                                                                         \
    X(data_frame_pattern, "data.frame_pattern", STR, "null", "-", "depth", 1, 255, "", "",                                                \
      "File name of a numbered frame, such as frames/%06d.jpg; default: from intrinsics.json")                                            \
    X(data_depth_pattern, "data.depth_pattern", STR, "null", "-", "depth", 1, 255, "", "",                                                \
      "File name of the measured depth of a numbered frame, a PNG file of 16 bits, such as depth/%06d.png; at least one target of "       \
      "data.val must have it. Default: from intrinsics.json")                                                                             \
    X(data_depth_unit_m, "data.depth_unit_m", REAL, "null", "-", "depth", 1e-300, 1e3, "m", "",                                           \
      "Depth that the value 1 means in the files of data.depth_pattern; default: from intrinsics.json")                                   \
    X(data_workers, "data.workers", INT, "null", "-", "", 1, 256, "threads", "",                                                          \
      "Decoding threads of a rank; default: run.threads / 4, beside a GPU run.threads - 1 and at most 16")                                \
    X(data_aspect_groups, "data.aspect_groups", BOOL, "true", "-", "rcnn sparse", 0, 0, "", "",                                           \
      "Fill a shard with pictures of one shape, as far as an epoch has them: upright or not (d2), or one of eight ratios (tv). It "       \
      "saves padding")                                                                                                                    \
    X(data_keep_empty, "data.keep_empty", BOOL, "false", "-", "rcnn sparse", 0, 0, "", "",                                                \
      "Train on images without an object too; all of such an image is background")                                                        \
    X(data_augment_flip, "data.augment.flip", REAL, "0.5", "-", "", 0, 1, "prob", "", "Probability of mirroring a picture left-right")    \
    X(data_augment_crop, "data.augment.crop", REAL, "0", "-", "sparse", 0, 1, "prob", "",                                                 \
      "Probability of cutting a part of 384 to 600 pixels each way out of a picture with a shorter side of 400, 500 or 600, before it "   \
      "gets its size. 0.5 is usual with 300 proposals")                                                                                   \
    X(data_augment_vflip, "data.augment.vflip", REAL, "0", "-", "yolo", 0, 1, "prob", "",                                                 \
      "Probability of mirroring a picture top-bottom")                                                                                    \
    X(data_augment_jitter, "data.augment.jitter", REAL, "0.3", "-", "yolo", 0, 0.9, "", "",                                               \
      "Amount of random change of aspect and placement; 0: no change")                                                                    \
    X(data_augment_scale, "data.augment.scale", REAL, "0", "-", "yolo", 0, 0.9, "", "",                                                   \
      "Amount of random zoom, by 1 - scale .. 1 + scale; parts that leave the picture are cropped")                                       \
    X(data_augment_hue, "data.augment.hue", REAL, "0.1", "-", "yolo", 0, 0.5, "", "",                                                     \
      "Maximum random shift of hue, as a fraction of a full turn")                                                                        \
    X(data_augment_saturation, "data.augment.saturation", REAL, "1.5", "-", "yolo", 1, 10, "x", "",                                       \
      "Maximum random change of saturation: it is multiplied by 1/x .. x")                                                                \
    X(data_augment_exposure, "data.augment.exposure", REAL, "1.5", "-", "yolo", 1, 10, "x", "",                                           \
      "Maximum random change of brightness: it is multiplied by 1/x .. x")                                                                \
    X(data_augment_multiscale, "data.augment.multiscale", BOOL, "false", "-", "yolo", 0, 0, "", "",                                       \
      "Draw a new network size every 10 steps, from data.augment.size_min to data.augment.size_max")                                      \
    X(data_augment_size_min, "data.augment.size_min", INT, "null", "-", "yolo", 32, 2048, "px", "",                                       \
      "Minimum of the longer side of the network's input with data.augment.multiscale; the other side keeps its ratio. Default: "         \
      "model.size - 96, at least 32")                                                                                                     \
    X(data_augment_size_max, "data.augment.size_max", INT, "null", "-", "yolo", 32, 2048, "px", "",                                       \
      "Maximum of the longer side of the network's input with data.augment.multiscale; the other side keeps its ratio. Default: "         \
      "model.size + 96, at most 2048")                                                                                                    \
    X(data_augment_color_jitter, "data.augment.color_jitter", REALS, "[0.2, 0.2, 0.2, 0.1]", "-", "depth", 4, 4, "", "",                  \
      "Amounts x of random change of brightness, contrast, saturation and hue. The first three are multiplied by 1 - x .. 1 + x; hue "    \
      "is shifted by up to x of a full turn")                                                                                             \
    X(data_augment_color_jitter_prob, "data.augment.color_jitter_prob", REAL, "0.5", "-", "depth", 0, 1, "prob", "",                      \
      "Probability of data.augment.color_jitter, with one draw for all frames of a sample")                                               \
    X(train_steps, "train.steps", INT, "null", "-", "", 1, 100000000, "steps", "",                                                        \
      "Optimizer steps of the job; a job has either train.steps or train.epochs")                                                         \
    X(train_epochs, "train.epochs", REAL, "null", "~", "", 1e-300, 1e8, "epochs", "",                                                     \
      "Passes over the training images, in place of train.steps; detctl submit counts the images and sends train.steps, rounded up")      \
    X(train_batch, "train.batch", INT, "-", "-", "", 1, 65536, "images", "", "Images of a step, over all ranks and waves")                \
    X(train_shards, "train.shards", INT, "null", "-", "", 1, 64, "shards", "",                                                            \
      "Virtual ranks that a batch is divided among, a power of two that divides train.batch; run.ranks may not exceed it. Default: "      \
      "the largest up to 8 with at least 4 images each, or at least 1 for depth networks, and for R-CNN with model.freeze_bn or "         \
      "model.sync_bn")                                                                                                                    \
    X(train_waves, "train.waves", INT, "1", "-", "", 1, 64, "waves", "",                                                                  \
      "Parts in which a rank computes its shards, one after the other, like darknet's subdivisions; more parts save memory. They change " \
      "no bits on CPUs, and none on GPUs in the tier world")                                                                              \
    X(train_seed, "train.seed", INT, "1", "-", "", 0, 9007199254740991, "", "", "Seed of everything random in the job")                   \
    X(train_optimizer, "train.optimizer", ENUM, "\"sgd\"", "-", "", 0, 0, "", "sgd|adam|adamw",                                           \
      "sgd: SGD with momentum; adam: Adam; adamw: Adam with weight decay apart from the moments")                                         \
    X(train_lr, "train.lr", REAL, "0.001", "-", "", 1e-300, 1e3, "", "", "Learning rate after the warm-up")                               \
    X(train_backbone_lr, "train.backbone_lr", REAL, "1", "-", "sparse", 0, 100, "x", "",                                                  \
      "Factor of the learning rate for the backbone; lower it to change pretrained weights less")                                         \
    X(train_momentum, "train.momentum", REAL, "0.9", "-", "", 0, 0.9999, "", "", "Momentum of sgd")                                       \
    X(train_nesterov, "train.nesterov", BOOL, "false", "false", "", 0, 0, "", "", "Use Nesterov's momentum, with sgd")                    \
    X(train_beta1, "train.beta1", REAL, "0.9", "0.9", "", 0, 0.9999, "", "", "Decay of the mean of gradients, with adam and adamw")       \
    X(train_beta2, "train.beta2", REAL, "0.999", "0.999", "", 0, 0.999999, "", "",                                                        \
      "Decay of the mean of the squares of gradients, with adam and adamw")                                                               \
    X(train_eps, "train.eps", REAL, "1e-8", "1e-8", "", 1e-30, 1, "", "",                                                                 \
      "Number added to the root of the mean of the squares of gradients, with adam and adamw")                                            \
    X(train_weight_decay, "train.weight_decay", REAL, "0.0005", "-", "", 0, 10, "", "",                                                   \
      "Weight decay of convolution weights; for R-CNN of biases too, and for Sparse R-CNN or with model.flavor tv of everything that "    \
      "trains")                                                                                                                           \
    X(train_burn_in, "train.burn_in", INT, "null", "-", "", 0, 100000000, "steps", "",                                                    \
      "Length of the warm-up of the learning rate; default: min(1000, steps/20)")                                                         \
    X(train_warmup, "train.warmup", ENUM, "\"power\"", "\"power\"", "", 0, 0, "", "power|linear",                                         \
      "Factor of the learning rate in the warm-up: power is (t / burn_in) ^ burn_in_power at step t, as in darknet; linear is a line "    \
      "from train.warmup_factor to 1")                                                                                                    \
    X(train_warmup_factor, "train.warmup_factor", REAL, "0.001", "0.001", "", 0, 1, "x", "",                                              \
      "Factor of train.lr at which a linear warm-up begins")                                                                              \
    X(train_burn_in_power, "train.burn_in_power", REAL, "4", "-", "", 0.1, 10, "", "",                                                    \
      "Exponent of train.warmup power: the rate is lr * (t / burn_in) ^ power at step t")                                                 \
    X(train_schedule, "train.schedule", ENUM, "\"steps\"", "\"steps\"", "", 0, 0, "", "steps|cosine|poly|constant",                       \
      "Fall of the learning rate after the warm-up: steps falls at train.lr_steps; cosine and poly fall to train.lr_end at the end of "   \
      "the job; constant does not fall")                                                                                                  \
    X(train_lr_end, "train.lr_end", REAL, "0", "0", "", 0, 1, "x", "", "Factor of train.lr that cosine and poly fall to")                 \
    X(train_poly_power, "train.poly_power", REAL, "0.9", "0.9", "", 0.1, 10, "", "",                                                      \
      "Exponent of train.schedule poly: the rate falls as (1 - part done) ^ power")                                                       \
    X(train_lr_steps, "train.lr_steps", REALS, "[0.8, 0.9]", "-", "", 0, 64, "steps, or texts as \"2 epochs\"", "",                       \
      "Steps from which on the rate is multiplied by train.lr_scale, or with train.warmup linear after which; numbers below 1 are "       \
      "fractions of train.steps")                                                                                                         \
    X(train_lr_scale, "train.lr_scale", REAL, "0.1", "-", "", 1e-300, 1, "x", "",                                                         \
      "Factor of the learning rate at each of train.lr_steps")                                                                            \
    X(train_clip_norm, "train.clip_norm", REAL, "0", "-", "", 0, 1e9, "", "",                                                             \
      "Maximum norm of the whole gradient; a larger gradient is scaled down to it. 0: no limit")                                          \
    X(train_ema, "train.ema", REAL, "0", "0", "", 0, 0.99999, "", "",                                                                     \
      "Decay of a moving average of the weights, which is then validated and saved in place of the weights; 0: no average")               \
    X(train_freeze, "train.freeze", STRS, "[]", "[]", "", 0, 64, "", "",                                                                  \
      "Parts that do not train: names of arrays, with * and ? as in names of files, or layers by number, such as 0-14, as detctl "        \
      "layers lists them; needs model.init")                                                                                              \
    X(train_class_weights, "train.class_weights", NUMBERS, "{}", "{}", "yolo rcnn sparse", 1e-300, 1000, "x", "",                         \
      "Factors of the class loss, as {category name: factor}; categories that are not named, and the background, have 1. They hold in "   \
      "training and validation; raise them for rare classes")                                                                             \
    X(train_stop_after, "train.stop_after", INT, "0", "0", "", 0, 1000000, "validations", "",                                             \
      "Number of validations in a row without a new best, among those of val.every, after which the job ends, completed; 0: never")       \
    X(train_log_every, "train.log_every", INT, "10", "-", "", 1, 1000000, "steps", "",                                                    \
      "Steps over which the training loss is summed before it is stored")                                                                 \
    X(val_every, "val.every", INT, "null", "-", "", 0, 100000000, "steps, or a text as \"2 epochs\"", "",                                 \
      "Steps between validations; there is one after the last step, too. 0: never. Default: steps/10 where data.val is given")            \
    X(val_batch, "val.batch", INT, "8", "-", "", 1, 4096, "images", "", "Images of a validation shard")                                   \
    X(val_conf, "val.conf", REAL, "0.005", "-", "yolo rcnn sparse", 0, 1, "score", "",                                                    \
      "Score below which detections are dropped in validation. 0.005 is darknet's protocol, 0.05 detectron2's; compared with 0 it "       \
      "costs up to a point of AP")                                                                                                        \
    X(val_nms, "val.nms", REAL, "0.45", "-", "yolo rcnn", 0, 1, "IoU", "",                                                                \
      "IoU above which a detection suppresses worse ones of its class")                                                                   \
    X(val_max_det, "val.max_det", INT, "null", "-", "yolo rcnn sparse", 1, 10000, "boxes", "",                                            \
      "Detections kept of an image. Above 100, AP and AR count so many of a class, where COCO counts 100, and AR300 is AR with 300. "     \
      "Default: 100; for Sparse R-CNN model.proposals, and at most that times the number of classes")                                     \
    X(val_depth_crop, "val.depth_crop", ENUM, "null", "-", "depth", 0, 0, "", "none|garg|eigen",                                          \
      "Part of a picture in which depth is compared with measured depth: the crop of Garg or of Eigen, or none for all of the "           \
      "picture; default: garg for kitti, else none")                                                                                      \
    X(val_depth_least, "val.depth_least", REAL, "1e-3", "-", "depth", 1e-300, 1e6, "m", "",                                               \
      "Measured depth up to this is not scored, and predicted depth below it is raised to it")                                            \
    X(val_depth_cap, "val.depth_cap", REAL, "80", "-", "depth", 1e-300, 1e6, "m", "",                                                     \
      "Measured depth from this on is not scored, and predicted depth above it is lowered to it; papers use 80 or 50")                    \
    X(val_depth_scale, "val.depth_scale", ENUM, "null", "-", "depth", 0, 0, "", "median|factor",                                          \
      "Scale of predicted depth to metres: median is, for each picture, the median of measured over that of predicted depth; factor "     \
      "is val.depth_factor. Default: factor for kitti with data.stereo or where val.depth_factor is given, else median")                  \
    X(val_depth_factor, "val.depth_factor", REAL, "null", "-", "depth", 1e-300, 1e9, "m", "",                                             \
      "Metres of the network's unit with val.depth_scale factor; default for kitti with data.stereo: 36, the 0.54 m between its "         \
      "cameras over 0.015")                                                                                                               \
    X(checkpoint_every, "checkpoint.every", INT, "null", "-", "", 0, 100000000, "steps, or a text as \"2 epochs\"", "",                   \
      "Steps between checkpoints; there is also one after each validation that is the best so far. 0: only at the end. Default: "         \
      "val.every, or steps/10 without validation")                                                                                        \
    X(checkpoint_keep, "checkpoint.keep", INT, "3", "-", "", 1, 1000, "", "",                                                             \
      "Number of newest checkpoints that are kept besides the best. As many again are kept of those written by detctl checkpoint, at "    \
      "a pause or as the best so far")                                                                                                    \
    X(checkpoint_best, "checkpoint.best", STR, "\"loss\"", "\"loss\"", "", 1, 63, "", "",                                                 \
      "Measure by which a validation is the best, and its checkpoint kept: loss, or a metric of detctl eval, such as AP or AP50:cat")     \
    X(program_command, "program.command", ARGS, "null", "*code", "program", 1, 4096, "arguments", "",                                     \
      "Command of a program of your own, which runs once for each rank: the program and its arguments, 128 KiB in all. A job with "       \
      "this key has no keys of model, data, train and val")                                                                               \
    X(program_directory, "program.directory", PATH, "null", "*", "program", 1, 4095, "", "",                                              \
      "Working folder of the program. Default: the folder in which detctl is called, for a job file the folder of the file")              \
    X(program_gpus, "program.gpus", INT, "null", "*", "program", 0, 64, "GPUs", "",                                                       \
      "GPUs of the job, a multiple of run.ranks; each rank sees all of them. Default: as many as ranks on a node with GPUs, else 0")      \
    X(program_steps, "program.steps", INT, "null", "*", "program", 1, 1000000000000, "steps", "",                                         \
      "Number of steps that the program will train, for the progress and the time left")                                                  \
    X(program_silent_after, "program.silent_after", REAL, "null", "*", "program", 0, 1e9, "s", "",                                        \
      "Time without a report or a line of output after which a rank hangs; 0: never. Default: 1800 once the rank has reported a "         \
      "step, before that never")                                                                                                          \
    X(program_on_pause, "program.on_pause", ENUM, "\"refuse\"", "*", "program", 0, 0, "", "refuse|signal|words",                          \
      "How the program is paused. refuse: it is not, unless it has said that it asks for the word; signal: it saves at "                  \
      "program.stop_signal; words: it asks for the word")                                                                                 \
    X(program_stop_signal, "program.stop_signal", ENUM, "\"SIGTERM\"", "*", "program", 0, 0, "",                                          \
      "SIGTERM|SIGINT|SIGHUP|SIGQUIT|SIGUSR1|SIGUSR2", "Signal that tells the ranks to end")                                              \
    X(program_stop_grace, "program.stop_grace", REAL, "60", "*", "program", 0, 86400, "s", "",                                            \
      "Time from program.stop_signal until the ranks are killed, and for the answer to a word before that signal")                        \
    X(program_umask, "program.umask", STR, "null", "*", "program", 1, 4, "", "",                                                          \
      "File mode mask of the ranks, as octal digits; default: that of detd's jobs, 077")                                                  \
    X(program_limits, "program.limits", NUMBERS, "{}", "*", "program", -1, 1e19, "", "",                                                  \
      "Soft resource limits of the ranks, by the names of setrlimit: as, core, cpu, data, fsize, locks, memlock, nofile, nproc, stack; "  \
      "-1: none. Hard limits of detd's jobs hold. Default: those of detctl run, else those of detd's jobs")                               \
    X(program_terminal, "program.terminal", BOOL, "false", "*", "program", 0, 0, "", "",                                                  \
      "Give the program a terminal, which detctl shell shows; needs run.ranks=1")                                                         \
    X(program_commit, "program.commit", STR, "null", "*", "program", 1, 64, "", "",                                                       \
      "Git commit of program.directory when the job was submitted; detctl finds it out")                                                  \
    X(program_changes, "program.changes", STR, "null", "*", "program", 1, 64, "", "",                                                     \
      "Hash of the changes since that commit; none without changes; detctl finds it out")                                                 \
    X(program_script, "program.script", STR, "null", "*", "program", 1, 64, "", "",                                                       \
      "Hash of the script of program.command when the job was submitted; detctl finds it out")                                            \
    X(run_device, "run.device", ENUM, "\"auto\"", "*", "!program", 0, 0, "", "auto|cpu|cuda",                                             \
      "Device that computes; auto: GPUs where the node has enough for the job, else the CPU")                                             \
    X(run_ranks, "run.ranks", INT, "1", "*", "", 1, 64, "processes", "",                                                                  \
      "Processes of the job; more can be faster. The number changes no result on CPUs, nor on GPUs in tier world")                        \
    X(run_ranks_per_gpu, "run.ranks_per_gpu", INT, "1", "*", "", 1, 8, "processes", "",                                                   \
      "Ranks that share one GPU; more than 1 uses the shared-memory transport")                                                           \
    X(run_threads, "run.threads", INT, "null", "*", "", 1, 1024, "threads", "",                                                           \
      "CPU compute threads of a rank; default: max(1, slots/ranks)")                                                                      \
    X(run_isa, "run.isa", ENUM, "\"auto\"", "*", "!program", 0, 0, "", "auto|avx512|avx2|generic",                                        \
      "CPU build; all builds give the same bits. A build that is named does not use AMX; generic is for comparisons and tens of times "   \
      "slower")                                                                                                                           \
    X(run_deterministic, "run.deterministic", ENUM, "null", "*", "!program", 0, 0, "", "off|rerun|world",                                 \
      "Deterministic tier: rerun gives the same bits at each rerun, world at any number of ranks too, off promises nothing. Default: "    \
      "the tier of the node")                                                                                                             \
    X(run_precision, "run.precision", ENUM, "\"fp32\"", "*", "!program", 0, 0, "", "auto|fp32|tf32|bf16",                                 \
      "Precision of activations and products; sums, weights and their gradients are fp32. tf32 needs a GPU. On CPUs bf16 halves the "     \
      "memory of activations and, without AMX, takes longer. auto: bf16 on GPUs and on CPUs with AMX, else fp32, decided at "             \
      "submission")                                                                                                                       \
    X(run_restarts, "run.restarts", INT, "3", "*", "", 0, 1000, "times", "",                                                              \
      "Consecutive failures without a newer checkpoint after which the job is still restarted")                                           \
    X(run_on_hang, "run.on_hang", ENUM, "\"restart\"", "*", "", 0, 0, "", "restart|fail",                                                 \
      "Reaction to a rank that hangs: restart from the newest checkpoint, or fail")                                                       \
    X(run_on_end, "run.on_end", STR, "null", "*code", "", 1, 4095, "", "",                                                                \
      "Shell command that is run when the job ends, fails or hangs. It gets the event as a JSON line on its input, and has 60 s. It "     \
      "is not run for a job that is cancelled while it waits or is paused")                                                               \
    X(run_after, "run.after", INT, "null", "*", "", 1, 9007199254740991, "", "", "Id of a job that must end before this one starts")      \
    X(run_after_ok, "run.after_ok", BOOL, "false", "*", "", 0, 0, "", "",                                                                 \
      "Require that the job of run.after completes; if it fails or is cancelled, this job is cancelled")                                  \
    X(run_time_limit, "run.time_limit", REAL, "0", "*", "", 0, 1e9, "s", "",                                                              \
      "Time of running, without pauses, after which the job writes a checkpoint and ends, cancelled; extend counts it anew. 0: no "       \
      "limit")                                                                                                                            \
    X(run_priority, "run.priority", INT, "0", "*", "", -1000, 1000, "", "", "Priority in the queue; jobs with a higher one run first")    \
    X(run_stress, "errand.stress", INT, "null", "*", "", 0, 9007199254740991, "", "",                                                     \
      "Seed that varies everything that is otherwise chance: contents and places of memory, order of pictures and ranks; shows that "     \
      "no bit depends on it")                                                                                                             \
    X(run_env, "run.env", MAP, "{}", "*code", "", 0, 1024, "", "", "Environment variables of the ranks, 128 KiB in all")                  \
    X(run_evidence, "run.evidence", ENUM, "\"tensors\"", "*", "!program", 0, 0, "", "off|losses|tensors",                                 \
      "Hashes kept of each step, for comparison with another run: losses keeps those of data, losses and state; tensors those of "        \
      "gradients and weights too. Averages (train.ema) have no such hashes; those of a checkpoint's files protect them")                  \
    X(run_on_corruption, "run.on_corruption", ENUM, "\"restart\"", "*", "!program", 0, 0, "", "restart|fail",                             \
      "Reaction to a rank that has other weights than the rest: restart from the last checkpoint, or fail")                               \
    X(run_data_hash, "errand.data_hash", STR, "null", "*", "", 32, 32, "", "",                                                            \
      "Hash of the training set that the job requires, 32 hexadecimal digits")                                                            \
    X(verify_evidence, "errand.evidence", PATH, "null", "*", "", 0, 4095, "", "",                                                         \
      "Folder of another run of this job: train its steps again, compare each with its evidence, save nothing")                           \
    X(verify_from, "errand.from", INT, "null", "*", "", 0, 100000000, "step", "",                                                         \
      "Step at or before which the newest checkpoint of that run is the beginning; default 0: from scratch")                              \
    X(verify_to, "errand.to", INT, "null", "*", "", 1, 100000000, "step", "", "Last step to train; default: train.steps")                 \
    X(eval_run, "errand.run", PATH, "null", "*", "", 0, 4095, "", "",                                                                     \
      "Folder of another job with these keys: validate one of its checkpoints on data.val, which may be another set, and train "          \
      "nothing")                                                                                                                          \
    X(eval_step, "errand.step", INT, "null", "*", "", 1, 100000000, "step", "", "Step of the checkpoint of errand.run")                   \
    X(eval_job, "errand.job", INT, "null", "*", "", 1, 9007199254740991, "", "",                                                          \
      "Number of the job of errand.run, under which the results are listed")                                                              \
    X(eval_set, "errand.set", STR, "null", "*", "", 1, 64, "", "", "Name of the set under which the results are listed")
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
 * a json_t pointer (array of strings); NUMBERS: a json_t pointer (object of reals); ARGS: a json_t
 * pointer (array of strings; NULL when null); SIZE: struct jobspec_size (w -1
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
#define JOB_TYPE_ARGS            json_t *
#define X(field, key, type, ...) JOB_TYPE_##type field;
    JOB_KEYS(X)
#undef X
    const struct job_preset *preset; /* of model.preset; NULL with model.cfg */
    const struct job_family *family; /* of the model, or job_program */
};
/* Whether the job is a program of other people (program.command). train_steps is then program.steps, 0 when null. */
bool jobspec_is_program(const struct jobspec *s);

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
/* Hides code: in an object that jobspec_json() gave, sets the values of keys with code to null; of run.env each value.
 * Returns the names of those keys that had one, a new array; NULL: out of memory. */
json_t *jobspec_hide_code(json_t *root);
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
/* A sentence for the submitter about a value that is probably a mistake. Static. NULL: there is none. */
const char *jobspec_doubt(const struct jobspec *s);
/* For a program that knows the number of classes: family sparse gives at most model.proposals * classes detections. */
int jobspec_check_detections(const struct jobspec *s, int classes, struct err *err);
/* The default number of shards for a batch, with at least shard_images images in each shard. Pure. */
int jobspec_default_shards(int64_t batch, int shard_images);
/* Default number of steps between validations, and between checkpoints without val.every and checkpoint.every: a tenth
 * of all steps. */
int64_t jobspec_default_every(int64_t steps);
/* The preset of a job, which may be incomplete. NULL: it names no preset of job_presets. */
const struct job_preset *jobspec_preset(const json_t *root);
/* Writes the `--help-keys` text from the table: of the keys of a preset, with its defaults, or of all keys (preset
 * NULL). Returns -EIO if the text was not written completely. */
int jobspec_write_help(FILE *out, const struct job_preset *preset);
