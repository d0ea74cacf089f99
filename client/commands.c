#include "client/base/command.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stddef.h>
#include <string.h>

/* clang-format off */
const struct command commands[] = {
    { "submit", "FILE [KEY=VALUE ...] [--init WEIGHTS] [--after ID[:ok]] [--time LIMIT] [--no-check] [--as NAME] [--wait | --watch]",
      "Queues a job and prints its id",
      "FILE is a job file (FILE.json is tried too); KEY=VALUE changes one of its keys. Paths in FILE are relative to FILE,\n"
      "paths in KEY=VALUE to the current folder; each is opened before anything is queued. train.epochs, and texts such as \"2\n"
      "epochs\" in other keys, are turned into steps: detd-worker counts the images, and reads all of them if data.on_bad=skip\n"
      "or data.val.fraction is given.\n"
      "Data and weights are checked first, as by detctl check; a job that would fail is not queued. A good check is remembered\n"
      "in ~/.cache/detd as long as the files of labels and weights do not change. Root submits to the system's daemon only\n"
      "for a user, with --as.\n\n"
      "  --init W     start from these weights (model.init): a file, or job:12, with @best, @last or @STEP\n"
      "  --after ID   start the job when job ID has ended (run.after); with ID:ok when it has completed, else cancel the job\n"
      "  --time LIMIT end the job, after a checkpoint, when it has run so long: 30d, 12h, 45m, 90s or 2w (run.time_limit)\n"
      "  --no-check   queue the job without a check of data and weights\n"
      "  --as NAME    as root: submit for this user, as `sudo -u NAME detctl ...` does; the files are opened as NAME, too\n"
      "  --wait       wait silently until the job ends\n"
      "  --watch      follow the job as detctl watch does\n"
      "  --help-keys  list the keys of a job file: those of a preset if FILE or the preset's name is given, else all\n",
      "  detctl submit bccd.json train.lr=0.002 run.ranks=2 --watch\n",
      command_submit },
    { "run", "[--ranks N] [--gpus N] [--name NAME] [--after ID[:ok]] [--time LIMIT] [--env NAME[=VALUE]] [--env-all | --env-none] "
      "[--as NAME] [--print] [--wait | --watch | --logs] [KEY=VALUE ... --] COMMAND ...",
      "Queues a command of your own, such as any PyTorch trainer, and prints the job's id",
      "COMMAND runs once for each rank, in the current folder, with the environment that torchrun gives (RANK, LOCAL_RANK,\n"
      "WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and all GPUs of the job. What it prints goes into the logs. PATH, VIRTUAL_ENV,\n"
      "CONDA_*, PYTHONPATH and LD_LIBRARY_PATH go along, as do umask and resource limits (ulimit). KEY=VALUE, before --, sets\n"
      "keys of run.* and program.*. Words after the first word of COMMAND are its own, so options of detctl come before it.\n"
      "Losses of all ranks, checkpoints and pauses need a few lines in the program: see the page on programs. Exit status 0 of\n"
      "all ranks is success; any other fails the job. A job file that names a program is queued by detctl submit.\n\n"
      "  --ranks N      processes (run.ranks; default: one for each GPU of --gpus, else 1)\n"
      "  --gpus N       GPUs of the job, a multiple of the ranks (program.gpus; default: one for each rank on a node with GPUs)\n"
      "  --name NAME    name of the job; default: that of the program or script\n"
      "  --after ID     start the job when job ID has ended (run.after); with ID:ok when it has completed, else cancel the job\n"
      "  --time LIMIT   end the job when it has run so long: 30d, 12h, 45m, 90s or 2w (run.time_limit)\n"
      "  --env NAME     take this variable along, too; NAME=VALUE gives it a value. The option may be repeated\n"
      "  --env-all      take all variables along, except those with names that end in TOKEN, KEY, SECRET or PASSWORD\n"
      "  --env-none     take no variables along, except those of --env\n"
      "  --as NAME      as root: submit for this user, as `sudo -u NAME detctl ...` does\n"
      "  --print        print the job file and queue nothing\n"
      "  --wait         wait silently until the job ends\n"
      "  --watch        follow the job as detctl watch does\n"
      "  --logs         print the logs until the job ends\n",
      "  detctl run --ranks 4 --name lr-sweep -- python3 train.py --lr 0.01\n", command_run },
    { "shell", "[--gpus N] [--name NAME] [--time LIMIT] [--env NAME[=VALUE]] [--env-all | --env-none] [--as NAME] "
      "[KEY=VALUE ... --] [COMMAND ...]",
      "Queues a shell, or another command, and shows it on this terminal",
      "Without COMMAND it is your shell, $SHELL. The job waits in the queue as any other; Ctrl-C cancels it before it runs. It\n"
      "keeps its slots and GPUs until the shell ends (Ctrl-D), or until a minute after this terminal was lost. The current folder\n"
      "and the environment are those of detctl run. It needs a terminal: over ssh, use ssh -t. Without GPUs it takes all CPU\n"
      "slots of the node; `detctl shell run.threads=1 --` takes one. The job has completed when the shell has ended, whatever\n"
      "the status of its last command. Scripts need detctl run --wait, which tells a failure.\n\n"
      "  --gpus N      GPUs of the job (program.gpus; default: one on a node with GPUs)\n"
      "  --name NAME   name of the job; default: that of the command\n"
      "  --time LIMIT  end the job when it has run so long: 30d, 12h, 45m, 90s or 2w (run.time_limit)\n"
      "  --env NAME    take this variable along, too; NAME=VALUE gives it a value. The option may be repeated\n"
      "  --env-all     take all variables along, except those with names that end in TOKEN, KEY, SECRET or PASSWORD\n"
      "  --env-none    take no variables along, except those of --env\n"
      "  --as NAME     as root: submit for this user, as `sudo -u NAME detctl ...` does\n",
      "  detctl shell --gpus 1 --time 2h\n", command_shell },
    { "check", "FILE [KEY=VALUE ...]", "Checks a job file and all of its data, and queues nothing", "",
      "  detctl check bccd.json data.on_bad=skip\n", command_check },
    { "clone", "ID [KEY=VALUE ...] [--same-data] [--no-check] [--as NAME] [--wait | --watch]",
      "Queues a new job with the keys of a job, perhaps some of them changed, and prints its id",
      "The new job starts at step 0. To continue a failed job from its newest checkpoint, use detctl resume. Relative paths\n"
      "are relative to the current folder. All keys keep the values of that job, except run.after. If train.steps or\n"
      "train.epochs is given, val.every is adjusted if it was a tenth of the steps, the default; checkpoint.every is adjusted\n"
      "if it was equal to val.every. A job with code of its owner, run.env or run.on_end, is cloned by its owner only.\n\n"
      "  --same-data  refuse to train if the training data differs from that of job ID\n"
      "  --no-check   queue the job without a check of data and weights\n"
      "  --as NAME    as root: submit for this user, as `sudo -u NAME detctl ...` does; the files are opened as NAME, too\n"
      "  --wait       wait silently until the job ends\n"
      "  --watch      follow the job as detctl watch does\n",
      "  detctl clone 3 train.lr=0.002 model.init=job:3@best\n", command_clone },
    { "extend", "ID --steps N | --epochs N [--wait | --watch]", "Trains a completed job on, to N steps from its beginning",
      "Weights, losses and scores are equal to those of a job that was given N steps from the start. Keys that depend on the\n"
      "number of steps by default, such as train.burn_in and val.every, keep their values; a message says where a new job of N\n"
      "steps would have others. If the learning rate depends on the number of steps (train.schedule cosine or poly, fractions\n"
      "in train.lr_steps), or the last step was not a multiple of train.log_every and val.every, training continues from the\n"
      "newest checkpoint before the difference. Extending is refused if no such checkpoint is kept, or if the data has\n"
      "changed.\n\n"
      "  --steps N   new number of steps (train.steps)\n"
      "  --epochs N  new length in epochs\n"
      "  --wait      wait silently until the job ends\n"
      "  --watch     follow the job as detctl watch does\n",
      "  detctl extend 3 --steps 20000 --watch\n", command_extend },
    { "layers", "ID|FILE|PRESET [KEY=VALUE ...] [--classes N] [--json]",
      "Lists the layers of a network, or the arrays of a file of weights: number, name and shape",
      "The network is that of a job, of a job file (for the number of classes of its data), of a preset (80 classes) or of a\n"
      "darknet .cfg; a .safetensors file is listed too. model.load_until and train.freeze use these numbers: for yolo they are\n"
      "the layers of the .cfg, for other families and files the arrays in order. Running statistics do not train, and have \"-\"\n"
      "in place of a number.\n\n"
      "  --classes N  build the network for N classes, without looking at the data\n"
      "  --json       print an array of objects: layer, name, shape, trains\n",
      "  detctl layers yolov3_tiny model.width=0.5 --classes 3\n", command_layers },
    { "anchors", "FILE|ID [KEY=VALUE ...] [-n COUNT] [--json]", "Finds anchors for the boxes of a job's training data (yolo)",
      "Useful when the objects differ in size or shape from those of COCO. The method is darknet's k-means by IoU, on the\n"
      "boxes scaled to the network's input; the same data gives the same anchors. It prints the key for \"model\" in the job\n"
      "file, and the mean IoU of each box with its best anchor, for the new anchors and for those of the network.\n\n"
      "  -n, --count N  number of anchors (default: that of the network)\n"
      "  --json         print an object: boxes, anchor_sizes, mean_iou, own_mean_iou\n",
      "  detctl anchors bccd.json model.size=416\n", command_anchors },
    { "sample", "FILE|ID [KEY=VALUE ...] -o DIR [-n COUNT]", "Draws the samples that the network of a job sees in its first steps",
      "It draws exactly the samples that the job is trained on, after augmentation, with their boxes and masks. For depth\n"
      "networks it draws the target frame beside the frames that it is compared with. The data is checked first, as by detctl\n"
      "check.\n\n"
      "  -o, --out DIR  folder for sample-001.png and so on; it is made if it does not exist\n"
      "  -n, --count N  number of samples (16)\n",
      "  detctl sample bccd.json data.augment.scale=0.5 -o seen -n 4\n", command_sample },
    { "ls", "[--state STATE] [--user NAME | --mine] [--name PATTERN] [--tag TAG] [--since TIME] [-n COUNT] [--all] [--json]",
      "Lists jobs, newest first",
      "  --state STATE     queued, starting, running, stopping, paused, completed, failed or cancelled\n"
      "  --user NAME       jobs of this user; --mine: your own\n"
      "  --name PATTERN    jobs with this name; * and ? are wildcards, as in file names\n"
      "  --tag TAG         jobs with this tag (detctl tag)\n"
      "  --since TIME      jobs submitted within this time: 30d, 12h, 45m, 90s or 2w\n"
      "  -n, --limit COUNT maximum number of jobs (50)\n"
      "  --all             also jobs of verify and eval that have ended; --state, --name, --tag and --json list them anyway\n"
      "  --json            print an array of job objects\n"
      "BEST is the best AP of the job's validations, of boxes where masks are trained too, and for a depth network the lowest\n"
      "abs_rel. TIME is the time of running, without pauses. On a narrow terminal some columns are left out.\n",
      "  detctl ls --state running --since 12h\n", command_ls },
    { "show", "[ID] [--json]", "Shows a job with its attempts, losses and checkpoints; without ID your newest",
      "  --json  print the job object\n",
      "  detctl show 3 --json | python3 -c 'import json,sys; print(json.load(sys.stdin)[\"step\"])'\n", command_show },
    { "why", "[ID] [--json]", "Says why a job waits, or why it ended",
      "Without ID it tells about your newest job, and names it.\n", "  detctl why 3\n", command_why },
    { "queue", "[--json]", "Lists the waiting jobs, in the order in which they get slots, and why each waits",
      "  --json  print an array of job objects, with why\n",
      "  detctl queue\n", command_queue },
    { "watch", "[ID] [--term NAME]", "Follows a job until it ends: progress, rate, time left, both loss curves",
      "In a pipe it prints one line per new value. Ctrl-C ends the display, not the job. For a depth network it names the\n"
      "newest picture of validation: the first picture of the split above its depth in colours.\n\n"
      "  --term NAME  loss to show (total); all: every term, as lines\n",
      "  detctl watch 3 | grep val\n", command_watch },
    { "wait", "ID ...", "Waits until jobs have ended",
      "Exit code 0: all completed; 4: a job failed; 5: no job failed, but one was cancelled; 1: a job does not exist.\n",
      "  detctl wait 3 4\n", command_wait },
    { "logs", "[ID] [-f] [--rank N] [--tail N]", "Prints the log files of a job: of its ranks and of detd-job",
      "  -f, --follow  print new lines until the job ends\n"
      "  --rank N      print only the log of this rank\n"
      "  --tail N      begin with the last N lines of each log\n",
      "  detctl logs 3 -f --rank 0\n", command_logs },
    { "events", "[ID] [-n COUNT] [--json]", "Prints the events of a job, or of all jobs and the node",
      "  -n, --limit COUNT  number of newest events (50)\n",
      "  detctl events 3\n", command_events },
    { "usage", "[ID] [-n COUNT] [--json] | --by user [--since TIME] [--json]",
      "Prints the use of CPU cores, memory and GPUs by a job over time, or the slot hours granted to each user",
      "  -n, --limit COUNT  number of newest rows (60)\n"
      "  --by user          GPU hours and CPU slot hours that the jobs of each user held\n"
      "  --since TIME       only those of this time: 30d, 12h or 2w; it counts only while detd runs\n",
      "  detctl usage 3\n"
      "  detctl usage --by user --since 30d\n",
      command_usage },
    { "cancel", "ID ...", "Ends jobs for good", "", "  detctl cancel 3\n", command_control },
    { "pause", "ID ...", "Writes a checkpoint and gives the slots back", "", "  detctl pause 3\n", command_control },
    { "resume", "ID ...", "Queues paused and failed jobs again; each continues from its newest checkpoint",
      "A failed job keeps its id, losses and checkpoints, and its results are as if it had never failed. Remove the cause of\n"
      "the failure first: restore data that was missing or had changed, or free memory. After a loss that was not finite the\n"
      "job fails at the same step again, because the same numbers come up: use clone with other keys. A queued job that waits\n"
      "for a missing file or for the node is tried at once.\n",
      "  detctl resume 3\n", command_control },
    { "priority", "ID N", "Changes the place of a job in the queue: jobs with a higher priority run first",
      "N is -1000 to 1000; the first value is run.priority of the job file. For a running job N takes effect when it is queued\n"
      "again.\n",
      "  detctl priority 3 10\n", command_priority },
    { "checkpoint", "ID ...", "Writes a checkpoint at the next step boundary", "", "  detctl checkpoint 3\n", command_control },
    { "deterministic", "[on | off] [--tier off|rerun|world] [--job ID] [--json]", "Shows or sets the deterministic tier",
      "Without --job the command is about the tier of new jobs; with it, about that of a running job, from a step on that its\n"
      "ranks agree on. on means rerun (the same bits at every rerun), or the tier given. world: the same bits at any number of\n"
      "ranks, too.\n",
      "  detctl deterministic on --tier world --job 3\n", command_deterministic },
    { "note", "ID TEXT", "Writes a line about a job, which detctl show prints; '' removes it",
      "TEXT has at most 400 bytes. The job may have ended.\n",
      "  detctl note 3 'with the old cameras'\n", command_note },
    { "tag", "ID [+]TAG ... -TAG ...", "Adds tags to a job, or removes them; detctl ls --tag finds jobs by tag",
      "A job has at most 16 tags, each of up to 32 characters a-z A-Z 0-9 . _ -\n", "  detctl tag 3 +night -base\n", command_tag },
    { "rm", "ID ...", "Removes jobs that have ended: rows, checkpoints and logs",
      "This cannot be undone, and no other job gets the same number. If a job is refused, the others are removed, and the exit\n"
      "code is 1. A job is refused, and stays as it is, if its processes have not left after a minute or its end is not yet on\n"
      "the disk. Folders are removed after the answer; detd's journal names files that cannot be removed, and the next detd\n"
      "tries again.\n",
      "  detctl rm 3 4 7\n", command_control },
    { "prune", "--older TIME [--keep-best] [--user NAME] [-n | --dry-run]",
      "Removes the jobs that ended some time ago: your own, or for an admin those of all users",
      "  --older TIME   jobs that ended longer ago than this: 30d, 12h, 45m, 90s or 2w\n"
      "  --keep-best    keep the jobs, with all rows and their best checkpoint; remove their other checkpoints and their logs\n"
      "  --user NAME    only jobs of this user\n"
      "  -n, --dry-run  only list the jobs\n",
      "  detctl prune --older 30d --dry-run\n", command_prune },
    { "loss", "[ID] [--split train|val] [--term NAME] [--points N] [--csv | --json | --plot]", "Prints the losses of a job",
      "  --split S   print only train or only val\n"
      "  --term T    print only this term, or all terms; default: total for table and plot, all for CSV and JSON\n"
      "  --points N  thin each curve to about N rows\n"
      "  --csv       print CSV with the header job,split,term,step,epoch,value,tier,time; reals with 17 digits\n"
      "  --json      print an array of rows\n"
      "  --plot      draw the curves, and mark changes of the deterministic tier\n",
      "  detctl loss 3 --split val --term total --csv > val.csv\n", command_loss },
    { "eval", "[ID] [--metric NAME | --per-class] [--set NAME] [--on SET [--images DIR] [--format F] [--checkpoint STEP|best|last] "
      "[KEY=VALUE ...]] [--as NAME] [--csv | --json] [--now]",
      "Prints evaluation results: the newest, or the history of one metric; or evaluates a checkpoint on a data set",
      "  --metric NAME   print the whole history of this metric\n"
      "  --per-class     print for each class: the number of objects, COUNT; AP and AP50; PRECISION and RECALL at IoU .50,\n"
      "                  from the score CONF on at which their F1 is the best\n"
      "  --on SET        evaluate a checkpoint on this set now: a job of detd computes the losses and metrics of a validation\n"
      "                  on SET in place of data.val, and keeps them under the set's name. Job ID may run or have ended\n"
      "  --images DIR    folder of the pictures of SET (default if SET has the job's form: data.val.images, or\n"
      "                  data.train.images)\n"
      "  --format F      form of SET, as in data.val.format (default: coco for .json, yolo for .yaml, darknet for .data, else\n"
      "                  the job's)\n"
      "  --checkpoint C  a step, last, or best (the default): the checkpoint of the best validation by the job's\n"
      "                  checkpoint.best\n"
      "  KEY=VALUE       another value of a key of data or val, such as data.voc_boxes=corners, data.names=FILE or val.nms=0.6\n"
      "  --set NAME      print the results of that set; with --on: name for the set (default: its file name without .json)\n"
      "  --as NAME       as root, with --on: submit that job for this user, as `sudo -u NAME detctl ...` does\n"
      "  --csv, --json   print everything, for scripts\n"
      "  --now           ask the running job to evaluate at its next step\n"
      "Metrics of a class are AP:CLASS, AP50:CLASS, P50:, R50:, conf: and n:, as in the table eval; those of masks begin with\n"
      "segm_. A set has losses too, such as loss/total. Categories of SET are matched to those of the job by name; objects of\n"
      "other categories are left out.\n"
      "Depth networks have the metrics abs_rel to a3 where depth was measured, and ate and ate_std where poses.txt holds the\n"
      "camera's way: mean and deviation of the error of the way over five frames.\n",
      "  detctl eval 3 --metric AP50\n"
      "  detctl eval 3 --on test.json --checkpoint best --per-class\n", command_eval },
    { "compare", "A B ... [--split train|val] [--term NAME] [--plot | --csv | --json]",
      "Shows jobs side by side: keys that differ, best values, curves",
      "It takes up to six jobs. To find out whether two runs are equal to the bit, use detctl diff.\n\n"
      "  --split NAME  split of the losses: val or train\n"
      "  --term NAME   loss to compare (total)\n"
      "  --plot        draw the curves, too\n"
      "  --csv         print only the curves, with every row\n"
      "  --json        print everything as JSON\n",
      "  detctl compare 3 4 --plot\n", command_compare },
    { "predict", "ID IMAGE|FOLDER|PATTERN|- ... | --on SET [--images DIR] [--format F] | --split train|val -o DIR [--conf SCORE] "
      "[--results-conf SCORE] [--checkpoint STEP|best|last] [--no-pictures] [--quiet] [--enlarge]",
      "Draws the boxes and masks, or the depth, that a job's network finds in pictures",
      "It writes NAME.png for each picture, and results.json, to DIR. results.json holds COCO results: each record has the\n"
      "file_name given, and an image_id that counts the pictures from 1. A network that finds masks writes them to a second\n"
      "file, results_segm.json, in the form of COCO's tools. Folders below the common folder of all pictures are kept: a/i.jpg\n"
      "and b/i.jpg become DIR/a/i.png and DIR/b/i.png. Only files of an earlier predict are replaced: if NAME.png is another\n"
      "file, NAME-2.png is written. A picture that cannot be read is reported and left out; the exit code is then 1.\n"
      "It computes on the CPU, in the job's run.precision (fp32 for tf32), as a validation on the CPU does.\n"
      "A FOLDER is searched, with all folders below it, for files with the endings of pictures, such as .jpg; a quoted PATTERN\n"
      "is a pattern of the shell (* ? [ ]); - reads names from standard input, one a line. Pictures given by name are always\n"
      "turned by their EXIF orientation. R-CNN of model.flavor=d2 and Sparse R-CNN turn the pictures of a set, too, as in\n"
      "training; other networks take them as stored.\n"
      "A depth network writes NAME.png, depth in colours with near in bright ones, and NAME_depth.png, a grey PNG of 16 bits:\n"
      "depth is its numbers divided by Depth-scale, a text in the file, in metres or in the network's own unit, named by the\n"
      "text Depth-unit. It also takes a FOLDER of frames with intrinsics.json. It then writes NAME_next.png, the next frame as\n"
      "seen by the camera of this one, and the camera's way, as trajectory.txt in TUM's form and as trajectory_kitti.txt. The\n"
      "way covers the first frames in a row that can be read and have the size given in intrinsics.json; its times are the\n"
      "numbers of the frames. It ends at the first missing number.\n\n"
      "  -o, --out DIR     folder for the results; it is made if it does not exist\n"
      "  --on SET          take the pictures of a data set, without its annotations. For a COCO file results.json has its\n"
      "                    image_id and, matched by name, its category_id, so that COCO's tools can read it. For other forms\n"
      "                    both count from 1. If the set has a validation split, that split is taken\n"
      "  --images DIR      folder of the pictures of SET (default if SET has the job's form: data.val.images, or\n"
      "                    data.train.images)\n"
      "  --format F        form of SET: coco, voc, darknet or yolo (default: coco for .json, yolo for .yaml, darknet for\n"
      "                    .data, else the job's)\n"
      "  --split S         take the pictures of the job's own split, train or val; for frames the targets\n"
      "  --conf SCORE      draw no boxes below this score (.25)\n"
      "  --results-conf S  write no results below this score; the default is --conf for pictures given by name, and with --on\n"
      "                    and --split val.conf of the job (.005; R-CNN .05; Sparse R-CNN 0), as in validation: a higher\n"
      "                    score costs AP\n"
      "  --checkpoint C    a step, last, or best (the default): the checkpoint of the best validation by the job's\n"
      "                    checkpoint.best\n"
      "  --no-pictures     write only results\n"
      "  --quiet           print no line for each picture; pictures that cannot be read are still reported\n"
      "  --enlarge         draw small pictures enlarged, so that letters can be read\n",
      "  detctl predict 3 street.jpg -o out --conf 0.3\n"
      "  detctl predict 3 --split val --no-pictures -o out\n", command_predict },
    { "export", "ID -f FORM -o FILE [--checkpoint STEP|best|last] | [ID ... | --all] --sqlite FILE",
      "Writes a job's weights for other programs, or copies jobs with all their rows into a new SQLite database",
      "  -f, --format F    weights: darknet's form, with a .cfg beside FILE, which OpenCV reads too (yolo); safetensors: with\n"
      "                    the names of the reference implementation; for R-CNN also torchvision or detectron2 (default: by\n"
      "                    model.flavor), for Sparse R-CNN detectron2 (the default) or mmdetection\n"
      "  -o, --out FILE    the file to write; an earlier export there is replaced, any other file is refused\n"
      "  --checkpoint C    a step, last, or best (the default): the checkpoint of the best validation by the job's\n"
      "                    checkpoint.best\n\n"
      "--sqlite needs only the right to look at the jobs. Tables and views have the names of detd.db: jobs, loss, loss_latest,\n"
      "loss_wide, eval, events, attempts, checkpoints, tiers, usage. Without ids your own jobs are copied. If a job no longer\n"
      "exists, it is named, the others are copied, and the exit code is 1. eval_on holds the results of eval --on for which\n"
      "the evaluating jobs are copied too.\n\n"
      "  --all          copy the jobs of all users\n"
      "  --sqlite FILE  the new database; FILE must not exist yet\n",
      "  detctl export 3 -f weights -o bccd.weights\n", command_export },
    { "diff", "A B [--rerun] [--json]", "Compares two runs: keys and identities that differ, and the first step that differs",
      "A and B are jobs, or folders with evidence. For the first step that differs it names the earliest difference: the data\n"
      "of a shard, a shard's loss with the first gradient, the gradient or the update of a tensor, or state. Exit code 0:\n"
      "equal as far as both runs go; 6: they differ; 1: undecided, because no step, or no step after a gap, has a record in\n"
      "both. Of two programs (detctl run) it compares what was submitted: code, command, keys, names of variables.\n\n"
      "  --rerun  if shard and tensor of that step were not kept, train the step again, as jobs, to find them\n"
      "  --json   print everything, for scripts\n",
      "  detctl diff 6 7\n", command_diff },
    { "verify", "ID|FOLDER [KEY=VALUE ...] [--from STEP] [--steps N] [--ranks P] [--isa I] [--device D] [--stress SEED] "
      "[--as NAME] [--json]",
      "Trains steps of a run again and says whether they come out equal",
      "It queues a job that starts at a checkpoint of the run, compares each step with the evidence of the run, saves nothing,\n"
      "and ends at the first step that differs. FOLDER is a folder written by evidence export; KEY=VALUE then gives the place\n"
      "of its data on this node (data.train.annotations, data.train.images, ...), and all of run.env, which is never taken from\n"
      "a folder. A job with run.env or run.on_end is verified by its owner only. Exit code 0: equal, 6: not equal, 4: the job\n"
      "failed before it could decide (other keys or data, no evidence of a step), 1: refused.\n\n"
      "  --from STEP  verify the steps after this one (0: all), starting at the newest checkpoint at or before it\n"
      "  --steps N    number of steps to verify (default: all that are recorded)\n"
      "  --ranks P    use P ranks; --isa I: use that CPU build; --device D: use that device\n"
      "  --stress S   vary everything that is otherwise left to chance, by a seed\n"
      "  --as NAME    as root: submit for this user, as `sudo -u NAME detctl ...` does; the files are opened as NAME, too\n"
      "  --json       print the verdict as an object: outcome (equal, differs, ...), reason, first and last step, or the step;\n"
      "               compared (all, or data, losses); and identity: other conditions that decide the bits and differ on this\n"
      "               node\n",
      "  detctl verify 3 --from 200 --steps 100 --ranks 1\n", command_verify },
    { "evidence", "export ID FOLDER", "Copies the evidence of a job into a new folder, to verify the job on another machine",
      "It copies spec.json, identity.json and the evidence, but no data and no checkpoints, so the job is verified from the\n"
      "first step on. The copy of spec.json omits the values of run.env, which may be secret, and run.on_end.\n",
      "  detctl evidence export 3 bccd-evidence\n", command_evidence },
    { "gpus", "[--json | --release UUID]", "Lists the GPUs of the node, their users, and why a GPU is not granted",
      "  --json          print an array of GPU objects\n"
      "  --release UUID  end the quarantine of a GPU; for admins, after the GPU was reset or repaired\n",
      "  detctl gpus\n", command_gpus },
    { "doctor", "[--json]", "Finds faults of detd and its node, and says how to remove them",
      "It checks socket, versions, detd-launch, disk, database, clock and GPUs, prints how much room the job files of each user\n"
      "take, searches for folders and processes that belong to no job, and changes nothing. Some checks work only for root\n"
      "and the user of detd; only root can see the files and processes of other users. Exit code 1: something is wrong;\n"
      "3: no detd answers.\n\n"
      "  --json  print an array of findings: level (ok, unknown, warning, wrong), what, text, todo\n",
      "  detctl doctor\n", command_doctor },
    { "drain", "REASON ... [--wait]",
      "Stops starting jobs until detctl undrain, also across a restart of detd; for admins, before work on the node",
      "Running jobs continue. Other jobs are still queued, and detctl why and queue show the reason.\n\n"
      "  --wait  return only when no job runs any more\n",
      "  detctl drain --wait new driver on Friday\n", command_drain },
    { "undrain", "", "Starts jobs again", "", "  detctl undrain\n", command_undrain },
    { "info", "[--json]", "Shows version, slots and counters of detd", "", "  detctl info --json\n", command_info },
    { "completion", "", "Prints the script by which bash completes commands, options, jobs and keys",
      "make install puts it where bash finds it; source <(detctl completion) does for this shell.\n",
      "  detctl completion > ~/.local/share/bash-completion/completions/detctl\n", command_completion },
    { 0 },
};
/* clang-format on */

const struct command *command_find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
