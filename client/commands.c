#include "client/base/command.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stddef.h>
#include <string.h>

/* clang-format off */
const struct command commands[] = {
    { "submit", "FILE [KEY=VALUE ...] [--init WEIGHTS] [--after ID[:ok]] [--time LIMIT] [--no-check] [--wait | --watch]", "Queues a job and prints its id",
      "FILE is a job file (FILE.json is tried too); KEY=VALUE changes one of its keys. Paths are relative to FILE, those\n"
      "of KEY=VALUE to the folder in which detctl runs; each is opened before anything is queued. train.epochs, and texts as\n"
      "\"2 epochs\" of other keys, become steps: detd-worker counts the images, with data.on_bad=skip or data.val.fraction by\n"
      "reading all of them.\n"
      "Data and weights are checked first, as check does; a job that would fail is not queued. A good check is remembered in\n"
      "~/.cache/detd while the files of labels and weights stay as they are. For root, files of other users are read as their owner reads them.\n\n"
      "  --init W     begin with these weights (model.init): a file, or job:12, with @best, @last or @STEP\n"
      "  --after ID   start it when that job has ended (run.after); ID:ok: has completed, else it is cancelled\n"
      "  --time LIMIT end it when it ran so long, after a checkpoint: 30d, 12h, 45m, 90s or 2w (run.time_limit)\n"
      "  --no-check   queue it without a check of data and weights\n"
      "  --wait       wait without a word until the job ends\n"
      "  --watch      follow it as detctl watch does\n"
      "  --help-keys  list the keys of a job file: of a preset, where FILE or the preset's name is given, else all\n",
      "  detctl submit bccd.json train.lr=0.002 run.ranks=2 --watch\n",
      command_submit },
    { "check", "FILE [KEY=VALUE ...]", "Checks a job file and all of its data, and queues nothing", "",
      "  detctl check bccd.json data.on_bad=skip\n", command_check },
    { "clone", "ID [KEY=VALUE ...] [--same-data] [--no-check] [--wait | --watch]", "Queues a new job with the keys of a job, perhaps some of them changed, and prints its id",
      "It begins anew; detctl resume lets a failed job go on from its newest checkpoint instead.\n"
      "Relative paths are looked for where detctl runs. All keys stay as they were worked out for that job, but run.after.\n"
      "Where train.steps or train.epochs is given, val.every follows if it was a tenth of the steps, as by default; checkpoint.every\n"
      "follows val.every if it was the same.\n\n"
      "  --same-data  refuse to train where the training data is not what that job was trained on\n"
      "  --no-check   queue it without a check of data and weights, which is made first else\n"
      "  --wait       wait without a word until the job ends\n"
      "  --watch      follow it as detctl watch does\n",
      "  detctl clone 3 train.lr=0.002 model.init=job:3@best\n", command_clone },
    { "extend", "ID --steps N | --epochs N [--wait | --watch]", "Trains a completed job on, to N steps from its beginning",
      "As if N steps and the job's other keys had been given at first: weights, losses and scores come out as theirs. What was worked out\n"
      "of the number of steps, as train.burn_in and val.every, stays, and is told where a new job of N steps has it otherwise. Where the rate depends on how many steps there are (train.schedule cosine or poly,\n"
      "fractions in train.lr_steps), or the last step was no multiple of train.log_every and val.every, it goes on from the newest\n"
      "checkpoint before that, and is refused where none is kept, or where its data is no more what it was trained on.\n\n"
      "  --steps N   train.steps\n"
      "  --epochs N  as many steps as these are\n"
      "  --wait       wait without a word until the job ends\n"
      "  --watch      follow it as detctl watch does\n",
      "  detctl extend 3 --steps 20000 --watch\n", command_extend },
    { "layers", "ID|FILE|PRESET [KEY=VALUE ...] [--classes N] [--json]",
      "Lists the layers of a network, or the arrays of a file of weights: number, name and shape",
      "Of a job, of a job file (for as many classes as its data has), of a preset (80 classes), of a darknet .cfg, or of a\n"
      ".safetensors file. Numbers are what model.load_until and train.freeze count by: those of the .cfg; of other families\n"
      "arrays are counted, as of a file. Running statistics do not train, and are written \"-\".\n\n"
      "  --classes N  for so many classes, and without a look at the data\n"
      "  --json       an array of objects: layer, name, shape, trains\n",
      "  detctl layers yolov3_tiny model.width=0.5 --classes 3\n", command_layers },
    { "anchors", "FILE|ID [KEY=VALUE ...] [-n COUNT] [--json]", "Finds anchors for the boxes of a job's training data (yolo)",
      "k-means by IoU, as darknet has it, of the boxes as large as they are at the network's input: the same data gives the\n"
      "same anchors. It prints the key for the job file's \"model\", and the mean IoU of each box with the anchor that fits it\n"
      "best, of these and of the network's own.\n\n"
      "  -n, --count N  so many; as many as the network has without it\n"
      "  --json         an object: boxes, anchor_sizes, mean_iou, own_mean_iou\n",
      "  detctl anchors bccd.json model.size=416\n", command_anchors },
    { "sample", "FILE|ID [KEY=VALUE ...] -o DIR [-n COUNT]", "Draws what the network of a job sees in its first steps",
      "The very samples that the job is trained on, as augmentation leaves them, with their boxes and masks; of depth networks\n"
      "the frame whose depth is learned beside those that it is compared with. The data is checked first, as check does.\n\n"
      "  -o, --out DIR  where to: sample-001.png and so on; made if it is not there\n"
      "  -n, --count N  so many (16)\n",
      "  detctl sample bccd.json data.augment.scale=0.5 -o seen -n 4\n", command_sample },
    { "ls", "[--state STATE] [--user NAME | --mine] [--name PATTERN] [--tag TAG] [--since TIME] [-n COUNT] [--all] [--json]", "Lists jobs, newest first",
      "  --state STATE     queued, starting, running, stopping, paused, completed, failed or cancelled\n"
      "  --user NAME       jobs of this user; --mine: your own\n"
      "  --name PATTERN    jobs that are called so; * and ? stand for others, as in names of files\n"
      "  --tag TAG         jobs that have it (detctl tag)\n"
      "  --since TIME      submitted at most so long ago: 30d, 12h, 45m, 90s or 2w\n"
      "  -n, --limit COUNT at most so many (50)\n"
      "  --all             also jobs of verify and eval that have ended; --state, --name, --tag and --json list them anyway\n"
      "  --json            an array of job objects\n"
      "BEST is the best AP of its validations (of boxes, where masks are trained; of a depth network abs_rel, the lowest), TIME how long it ran, without pauses. On a terminal columns are\n"
      "left out that have no room.\n",
      "  detctl ls --state running --since 12h\n", command_ls },
    { "show", "[ID] [--json]", "Shows a job with its attempts, losses and checkpoints; without ID your newest",
      "  --json  the job object\n",
      "  detctl show 3 --json | python3 -c 'import json,sys; print(json.load(sys.stdin)[\"step\"])'\n", command_show },
    { "why", "[ID] [--json]", "Says why a job waits, or why it ended", "Without an id of the newest of your jobs, which it names.\n", "  detctl why 3\n", command_why },
    { "queue", "[--json]", "Lists the jobs that wait for slots, in the order in which they get them, and for what each waits",
      "  --json  an array of job objects, with why\n",
      "  detctl queue\n", command_queue },
    { "watch", "[ID] [--term NAME]", "Follows a job until it ends: progress, rate, time left, both loss curves",
      "In a pipe: one line per new value. Ctrl-C leaves the job alone. Of a depth network it says where the newest picture of validation\n"
      "lies: the first picture of the split above its depth in colours.\n\n"
      "  --term NAME  which loss (total); all: every term, as lines\n",
      "  detctl watch 3 | grep val\n", command_watch },
    { "wait", "ID ...", "Waits until jobs have ended",
      "Exit code 0: all completed; 4: one failed; 5: none failed, one was cancelled; 1: there is no such job.\n",
      "  detctl wait 3 4\n", command_wait },
    { "logs", "[ID] [-f] [--rank N] [--tail N]", "Prints the log files of a job: of its ranks and of detd-job",
      "  -f, --follow  go on until the job ends\n"
      "  --rank N      only this rank\n"
      "  --tail N      begin with the last N lines of each\n",
      "  detctl logs 3 -f --rank 0\n", command_logs },
    { "events", "[ID] [-n COUNT] [--json]", "Prints what happened to a job, or to all and the node",
      "  -n, --limit COUNT  the newest so many (50)\n",
      "  detctl events 3\n", command_events },
    { "usage", "[ID] [-n COUNT] [--json]", "Prints what a job used over time: CPU cores, memory, GPUs",
      "  -n, --limit COUNT  the newest so many rows (60)\n",
      "  detctl usage 3\n", command_usage },
    { "cancel", "ID ...", "Ends jobs for good", "", "  detctl cancel 3\n", command_control },
    { "pause", "ID ...", "Writes a checkpoint and gives the slots back", "", "  detctl pause 3\n", command_control },
    { "resume", "ID ...", "Queues paused and failed jobs again; each goes on from its newest checkpoint",
      "A failed job keeps its id, losses and checkpoints, and comes out as if it had never failed. Mend the cause first: put back the data\n"
      "that was missing or had changed, or free memory. A job whose loss was not finite fails at the same step again, for the same numbers\n"
      "lead there: change its keys with clone. A queued job that waits for a missing file or for the node is tried at once.\n",
      "  detctl resume 3\n", command_control },
    { "priority", "ID N", "Changes the place of a job in the queue: who has the higher priority runs first",
      "From -1000 to 1000; run.priority of the job file is where it begins. Of a job that runs it counts when it is queued again.\n",
      "  detctl priority 3 10\n", command_priority },
    { "checkpoint", "ID ...", "Writes a checkpoint at the next step boundary", "", "  detctl checkpoint 3\n", command_control },
    { "deterministic", "[on | off] [--tier off|rerun|world] [--job ID] [--json]", "Shows or sets the deterministic tier",
      "Without --job it is that of new jobs; with it that of a running job, from a step on that its ranks agree on.\n"
      "on: rerun (same bits at every rerun) or the given tier. world: the same at any number of ranks too.\n",
      "  detctl deterministic on --tier world --job 3\n", command_deterministic },
    { "note", "ID TEXT", "Writes a line about a job, which show tells; '' takes it away", "At most 400 bytes; of jobs that have ended, too.\n",
      "  detctl note 3 'with the old cameras'\n", command_note },
    { "tag", "ID [+]TAG ... -TAG ...", "Gives tags to a job, or takes them away; ls --tag finds it by them",
      "A job has at most 16, each of up to 32 of a-z A-Z 0-9 . _ -\n", "  detctl tag 3 +night -base\n", command_tag },
    { "rm", "ID ...", "Removes jobs that have ended: rows, checkpoints and logs",
      "There is no way back, and no other job gets their numbers. Where one is refused the others go, and the exit code is 1. One whose\n"
      "processes have not left after a minute, or whose end waits for the disk, is refused and stays as it is. Folders go after the\n"
      "answer; what of them cannot be removed is told in detd's journal, and the next detd tries again.\n",
      "  detctl rm 3 4 7\n", command_control },
    { "prune", "--older TIME [--keep-best] [--user NAME] [-n | --dry-run]", "Removes the jobs that ended a while ago: an admin those of all users",
      "  --older TIME   that ended longer ago: 30d, 12h, 45m, 90s or 2w\n"
      "  --keep-best    keep the jobs, with all rows and the best checkpoint of each; their other checkpoints and logs go\n"
      "  --user NAME    only jobs of this user\n"
      "  -n, --dry-run  only list them\n",
      "  detctl prune --older 30d --dry-run\n", command_prune },
    { "loss", "[ID] [--split train|val] [--term NAME] [--points N] [--csv | --json | --plot]", "Prints the losses of a job",
      "  --split S   only train or only val\n"
      "  --term T    only this term; without it: total (table, plot), every term (CSV, JSON). all: every term\n"
      "  --points N  thin each curve to about N rows\n"
      "  --csv       header job,split,term,step,epoch,value,tier,time; reals with 17 digits\n"
      "  --json      an array of rows\n"
      "  --plot      draw the curves, and where the deterministic tier changed\n",
      "  detctl loss 3 --split val --term total --csv > val.csv\n", command_loss },
    { "eval", "[ID] [--metric NAME | --per-class] [--set NAME] [--on SET [--images DIR] [--format F] [--checkpoint STEP|best|last] [KEY=VALUE ...]] [--csv | --json] [--now]",
      "Prints evaluation results: the newest, or the history of one metric; or evaluates a checkpoint on a data set",
      "  --metric NAME   only this metric, all of its history\n"
      "  --per-class     of each class: COUNT objects, AP, AP50, and PRECISION and RECALL at IoU .50 at the score CONF from\n"
      "                  which on their F1 is the best\n"
      "  --on SET        evaluate a checkpoint on this set now: a job of detd computes the losses and metrics of a validation on\n"
      "                  SET in the place of data.val, and they are kept under the set's name. The job may run, or have ended\n"
      "  --images DIR    where the pictures of SET lie (where its form is the job's: data.val.images, or data.train.images)\n"
      "  --format F      of SET, as of data.val.format: else coco of .json, yolo of .yaml, darknet of .data, and the job's own of others\n"
      "  --checkpoint C  a step, last, or best (the default): the best validation by checkpoint.best of the job\n"
      "  KEY=VALUE       another value of a key of data or val, as data.voc_boxes=corners, data.names=FILE or val.nms=0.6\n"
      "  --set NAME      what is kept of that set; with --on the name that it gets (that of its file, without .json)\n"
      "  --csv, --json   everything, for scripts\n"
      "  --now           ask the running job to evaluate at its next step\n"
      "Metrics of classes are called AP:CLASS, AP50:CLASS, P50:, R50:, conf: and n:, as in the table eval; masks' begin with segm_. On a\n"
      "set losses stand beside them, as loss/total. Categories of SET are the job's by their names; objects of others are left out.\n"
      "Depth networks have abs_rel to a3 where depth was measured, ate and ate_std where poses.txt says how the camera moved: mean and\n"
      "deviation of the error of its way over five frames.\n",
      "  detctl eval 3 --metric AP50\n"
      "  detctl eval 3 --on test.json --checkpoint best --per-class\n", command_eval },
    { "compare", "A B ... [--split train|val] [--term NAME] [--plot | --csv | --json]", "Shows jobs side by side: keys that differ, best values, curves",
      "Up to six jobs. Whether two runs came out alike, to the bit, is what detctl diff says.\n\n"
      "  --split NAME  whose losses: val, or train\n"
      "  --term NAME   which loss (total)\n"
      "  --plot        draw their curves, too\n"
      "  --csv         the curves alone, every row of them\n"
      "  --json        all of it\n",
      "  detctl compare 3 4 --plot\n", command_compare },
    { "predict", "ID IMAGE|FOLDER|PATTERN|- ... | --on SET [--images DIR] [--format F] | --split train|val -o DIR [--conf SCORE] [--results-conf SCORE] "
                 "[--checkpoint STEP|best|last] [--no-pictures] [--quiet] [--enlarge]",
      "Draws the boxes and masks, or the depth, that a job's network finds in pictures",
      "To DIR go NAME.png for each picture and results.json: COCO results, each record with the file_name given; image_id\n"
      "counts the pictures from 1. A network that finds masks has these in a file of their own, results_segm.json, as COCO's\n"
      "tools want them. Folders below the one that all pictures have in common are kept: of a/i.jpg and b/i.jpg come\n"
      "DIR/a/i.png and DIR/b/i.png. Only what an earlier predict wrote is replaced: where NAME.png is another file,\n"
      "NAME-2.png is written. A picture that cannot be read is told and left out; the exit code is 1 then.\n"
      "It computes on the CPU, in the job's run.precision (tf32: fp32), as a validation there does.\n"
      "A FOLDER is looked through with all below it for files that end as pictures do, as .jpg; a quoted PATTERN is one of the\n"
      "shell's (* ? [ ]); - reads names from the standard input, one a line. Pictures given by name are always turned as their\n"
      "EXIF orientation says. R-CNN of model.flavor=d2 turns those of a set, too, as it does in\n"
      "training; all else is taken as stored.\n"
      "Of a network that says depth there are NAME.png, depth in colours, near is bright, and NAME_depth.png, a grey\n"
      "PNG of 16 bits: depth is its numbers over Depth-scale, a text in the file, in metres or in the network's own\n"
      "unit, as the text Depth-unit says. It also takes a FOLDER of frames with intrinsics.json: then there are NAME_next.png, the\n"
      "next frame as this one's camera would see it, and the camera's way, trajectory.txt as TUM has it and trajectory_kitti.txt:\n"
      "that of the first frames in a row that can be read and have the size that intrinsics.json says; its times are the frames'\n"
      "numbers. A number that is missing ends all.\n\n"
      "  -o, --out DIR     where to (made if it is not there)\n"
      "  --on SET          the pictures of a data set; of a COCO file with its image_id and, by the categories' names, its\n"
      "                    category_id, so that COCO's tools read results.json; it needs no annotations. Of other forms both count\n"
      "                    from 1, and of a set with a split for validation it is that one\n"
      "  --images DIR      where the pictures of SET lie (where its form is the job's: data.val.images, or data.train.images)\n"
      "  --format F        coco, voc, darknet or yolo: else coco of .json, yolo of .yaml, darknet of .data, and the job's own of others\n"
      "  --split S         the same of the job's own split, train or val; of frames the targets\n"
      "  --conf SCORE      draw no boxes below this score (.25)\n"
      "  --results-conf S  write no results below this score: by default as --conf of pictures given by name, and val.conf of the\n"
      "                    job (.005; R-CNN .05) with --on and --split, as in validation: a higher one costs AP\n"
      "  --checkpoint C    a step, last, or best (the default): the best validation by checkpoint.best of the job\n"
      "  --no-pictures     write results alone\n"
      "  --quiet           no line for each picture; what cannot be read is told all the same\n"
      "  --enlarge         draw small pictures enlarged, so that letters can be read\n",
      "  detctl predict 3 street.jpg -o out --conf 0.3\n"
      "  detctl predict 3 --split val --no-pictures -o out\n", command_predict },
    { "export", "ID -f FORM -o FILE [--checkpoint STEP|best|last] | [ID ... | --all] --sqlite FILE",
      "Writes a job's weights for other programs, or copies jobs with all their rows into a new SQLite database",
      "  -f, --format F    weights: darknet's, with FILE's .cfg beside them, which OpenCV reads too (yolo); safetensors: in the names\n"
      "                    of the reference implementation; of R-CNN also torchvision or detectron2, which model.flavor chooses else\n"
      "  -o, --out FILE    the file to write; an earlier export there is replaced, any other file is refused\n"
      "  --checkpoint C    a step, last, or best (the default): the best validation by checkpoint.best of the job\n\n"
      "With --sqlite: anybody may who may look at them. Tables and views are called as in detd.db: jobs, loss, loss_latest, loss_wide, eval, events,\n"
      "attempts, checkpoints, tiers, usage. Without ids: your own jobs. One that is no more is named, and the others are copied: exit code 1.\n"
      "eval_on has what eval --on found, by the jobs that looked: those have to be among the copied.\n\n"
      "  --all          the jobs of everybody\n"
      "  --sqlite FILE  the file, which must not be there yet\n",
      "  detctl export 3 -f weights -o bccd.weights\n", command_export },
    { "diff", "A B [--rerun] [--json]", "Compares two runs: keys and identities that differ, and the first step where they part",
      "A and B are jobs, or folders with evidence. Of the first step that differs it names what came first: the data of a\n"
      "shard, a shard's loss and the first gradient beside it, the gradient or the update of a tensor, or state. Exit\n"
      "code 0: equal as far as both go; 6: they differ; 1: nothing says which, as no step, or none after a gap to the end,\n"
      "has a record in both.\n\n"
      "  --rerun  where shard and tensor are not kept of that step, train it again, as jobs, to find them\n"
      "  --json   everything, for scripts\n",
      "  detctl diff 6 7\n", command_diff },
    { "verify", "ID|FOLDER [KEY=VALUE ...] [--from STEP] [--steps N] [--ranks P] [--isa I] [--device D] [--stress SEED] [--json]",
      "Trains steps of a run again and says whether they come out equal",
      "A job is queued that begins at a checkpoint of the run, compares each step with the evidence that the run left, saves\n"
      "nothing, and ends at the first step that differs. FOLDER is one that evidence export wrote: KEY=VALUE tells where its\n"
      "data lies here (data.train.annotations, data.train.images, ...). Exit code 0: equal, 6: not equal,\n"
      "4: the job failed before it could tell (other keys or data, no evidence of a step), 1: refused.\n\n"
      "  --from STEP  the steps after this one (0: all); the newest checkpoint at or before it is where it begins\n"
      "  --steps N    so many of them; all that are recorded without it\n"
      "  --ranks P    with so many ranks, --isa I on that CPU build, --device D on that device\n"
      "  --stress S   with what is else chance forced by a seed\n"
      "  --json       the verdict as an object: outcome (equal, differs, ...), reason, first and last step, or the step;\n"
      "               compared (all, or data, losses), and identity: what else the bits depend on and is another here\n",
      "  detctl verify 3 --from 200 --steps 100 --ranks 1\n", command_verify },
    { "evidence", "export ID FOLDER", "Copies what a job left to be compared with into a new folder, to verify it elsewhere",
      "spec.json, identity.json and the evidence; no data and no checkpoints, so it is verified from the first step on. spec.json\n"
      "leaves out the values of run.env, which may be secrets, and run.on_end.\n",
      "  detctl evidence export 3 bccd-evidence\n", command_evidence },
    { "gpus", "[--json | --release UUID]", "Lists the GPUs of the node: who uses them, and why one is not granted",
      "  --json          an array of GPU objects\n"
      "  --release UUID  grant a GPU again that was put into quarantine; for admins, after they saw to it\n",
      "  detctl gpus\n", command_gpus },
    { "doctor", "[--json]", "Says what is wrong with detd and its node, and what to do about it",
      "It looks at socket, versions, detd-launch, disk, database, clock, GPUs, and for folders and processes that belong to no job, and changes\n"
      "nothing. Some of it only root and the user of detd can see, and whose folder a user's process is in root alone.\n"
      "Exit code 1: something is wrong; 3: no detd answers.\n\n"
      "  --json  an array of findings: level (ok, unknown, warning, wrong), what, text, todo\n",
      "  detctl doctor\n", command_doctor },
    { "drain", "REASON ... [--wait]", "Starts no job any more, also after a restart of detd, till undrain: for admins, before work on the node",
      "Jobs that run go on; others are queued as ever, and detctl why and queue tell them the reason.\n\n"
      "  --wait  end when no job runs any more\n",
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
