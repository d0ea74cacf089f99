#include "worker/worker.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/host/cpu.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/host/output.h"
#include "proto/report.h"
#include "proto/host/start.h"
#include "worker/backend/devices.h"
#include "worker/modes/anchorfit.h"
#include "worker/modes/checkprogress.h"
#include "worker/core/file.h"
#include "worker/core/plain.h"
#include "worker/modes/datacheck.h"
#include "worker/modes/layerlist.h"
#include "worker/models/registry.h"
#include "worker/predict/predict.h"
#include "worker/modes/samples.h"
#include "worker/train/trainer.h"

static const char usage[] =
    "detd-worker trains one rank of a job. detd-job starts it; by hand it runs alone:\n"
    "\n"
    "  detd-worker [--dir DIR] FILE [key=value ...]     train with one rank; reports go to stdout as JSON lines, checkpoints\n"
    "                                                   into DIR (default: the job's name)\n"
    "  detd-worker --check [--brief] [--files LIST] FILE [key=value ...]\n"
    "                                                   check the job file and its data set, train nothing. --brief prints only\n"
    "                                                   possible faults, on stderr; --files writes to LIST the files of the check\n"
    "  detd-worker --check --job-dir DIR                check that the data of a job has not changed since its check\n"
    "  detd-worker --count-images FILE [key=value ...]  print the number of images of the training split that are trained on\n"
    "  detd-worker --layers [--classes N] [--json] FILE|PRESET [key=value ...]\n"
    "                                                   list the arrays of a job's network, of a .cfg, of a preset (80 classes),\n"
    "                                                   or of a .safetensors file\n"
    "  detd-worker --anchors [--count N] [--json] FILE [key=value ...]\n"
    "                                                   find anchors for the boxes of a job's training data\n"
    "  detd-worker --sample --out DIR [--count N] FILE [key=value ...]\n"
    "                                                   draw the samples that the network of a job sees in its first steps\n"
    "  detd-worker --predict --job-dir DIR --out DIR [--checkpoint STEP|best|last] [--conf X] [--results-conf X]\n"
    "              [--no-pictures] [--quiet] [--enlarge] IMAGE|FOLDER|PATTERN|-... | --on SET [--images DIR] [--format F] | --split "
    "train|val\n"
    "                                                   draw the objects that a trained model finds, and write results.json\n"
    "  detd-worker --export FORM --job-dir DIR --out FILE [--checkpoint STEP|best|last]\n"
    "                                                   write a job's weights: safetensors, in the names of the reference\n"
    "                                                   implementation; weights, darknet's, with a .cfg beside them; or in the\n"
    "                                                   names of torchvision or detectron2, with a message that says how to\n"
    "                                                   set up that program, for example its colours\n"
    "  detd-worker --job-dir DIR --rank R --ranks P --local-rank L --attempt N     as detd-job starts it\n"
    "\n"
    "Example: detd-worker bccd.json train.steps=100 run.threads=2\n"
    "Exit status: 0 done, 1 failed or refused, 2 usage.\n";

enum { COCO_CLASSES = 80 /* for a preset without data */, SAMPLES = 16, WARNINGS_SHOWN = 5, PROBLEMS_SHOWN = 20 };

struct args {
    const struct model_registry *models;
    bool check, brief, count, predict, layers, anchors, sample, json;
    const char *files; /* gets the list of files that a check read; NULL: no list */
    int classes;       /* 0: as in the data */
    int number;        /* of anchors or samples; 0: as in the network, or SAMPLES */
    const char *dir, *job_dir;
    const char *dialect; /* NULL: no export */
    int rank, ranks, local_rank, attempt;
    struct predict_options predict_opt;
};

static const char *called = "detd-worker"; /* prefix of messages; the program that runs this one may set another */
static FILE *plain_out;                    /* for people at a terminal, like stderr */

static int usage_error(const char *what)
{
    fprintf(stderr, "%s: %s\nTry: detd-worker --help\n", called, what);
    return 2;
}

static int failed(const struct err *err)
{
    fprintf(stderr, "%s: %s\n", called, err->msg);
    return 1;
}

/* Reads a job file with the overrides of the command line; its paths become absolute. If no training follows,
 * train.epochs may replace train.steps. */
static int read_job(const struct args *a, int argc, char **argv, struct jobspec **ret_spec, struct err *err)
{
    char *slash, *file = NULL, *dir;
    json_t *root = NULL;
    int rc = jobspec_read(argv[0], &root, err);

    for (int i = 1; i < argc && rc >= 0; i++)
        rc = jobspec_override(root, argv[i], err);
    if (rc >= 0 && !(file = realpath(argv[0], NULL)))
        rc = err_sys(err, "'%s'", argv[0]);
    if (rc >= 0) {
        slash = strrchr(file, '/');
        dir = slash == file ? strdup("/") : strndup(file, (size_t)(slash - file));
        rc = dir ? jobspec_absolute(root, dir, err) : err_set(err, ERR_DEVICE, "out of memory");
        free(dir);
    }
    if (rc >= 0)
        rc = a->count || a->layers || a->anchors || a->sample ? jobspec_parse_uncounted(a->models->presets, root, ret_spec, err)
                                                              : jobspec_parse_for(a->models->presets, root, false, ret_spec, err);
    free(file);
    json_decref(root);
    return rc;
}

/* Reads the job in a job folder. */
static int read_stored(const struct args *a, struct jobspec **ret_spec, struct err *err)
{
    char path[4096];
    json_t *root;
    int rc;

    snprintf(path, sizeof path, "%s/spec.json", a->job_dir);
    rc = jobspec_read(path, &root, err);
    if (rc < 0)
        return rc;
    rc = jobspec_parse_for(a->models->presets, root, true, ret_spec, err);
    json_decref(root);
    return rc;
}

static int run_check_same(const struct args *a)
{
    struct jobspec *spec;
    struct err err;
    int rc = read_stored(a, &spec, &err);

    if (rc < 0)
        return failed(&err);
    rc = datacheck_same(a->models, spec, a->job_dir, &err);
    jobspec_free(spec);
    return rc < 0 ? failed(&err) : 0;
}

static int check_in_full(const struct args *a, const struct jobspec *spec, struct err *err)
{
    const struct datacheck_out out = { plain_out, plain_out, checkprogress_start(""), a->files };
    int rc = datacheck_run(a->models, spec, &out, err);

    checkprogress_stop(out.progress);
    return rc;
}

static void tell_first(const char *text, int lines)
{
    const char *line = text, *end;
    int more = 0;

    for (int n = 0; (end = strchr(line, '\n')); n++, line = end + 1)
        if (n < lines)
            fprintf(stderr, "%.*s\n", (int)(end - line), line);
        else
            more++;
    if (more)
        fprintf(stderr, "... and %d more; detctl check tells all\n", more);
}

/* Shows the first warnings of a good check, or the first problems of a bad one. */
static int check_in_brief(const struct args *a, const struct jobspec *spec, struct err *err)
{
    char *text = NULL;
    size_t size;
    FILE *facts = fopen("/dev/null", "w"), *warnings = open_memstream(&text, &size);
    int rc = facts && warnings ? 0 : err_sys(err, "memory for a check");

    if (rc == 0) {
        const struct datacheck_out out = { facts, warnings, checkprogress_start(" (Ctrl-C queues nothing)"), a->files };

        rc = datacheck_run(a->models, spec, &out, err);
        checkprogress_stop(out.progress);
    }
    if (facts)
        fclose(facts);
    if (warnings && fclose(warnings) == 0)
        tell_first(text, rc < 0 ? PROBLEMS_SHOWN : WARNINGS_SHOWN);
    free(text);
    return rc;
}

static int run_check(const struct args *a, int argc, char **argv)
{
    struct jobspec *spec;
    struct err err;
    int rc;

    if (argc < 1 && a->job_dir)
        return run_check_same(a);
    if (argc < 1)
        return usage_error("--check needs a job file");
    rc = read_job(a, argc, argv, &spec, &err);
    if (rc < 0)
        return failed(&err);
    rc = a->brief ? check_in_brief(a, spec, &err) : check_in_full(a, spec, &err);
    jobspec_free(spec);
    return rc < 0 ? failed(&err) : 0;
}

static int run_count(const struct args *a, int argc, char **argv)
{
    struct jobspec *spec;
    struct err err;
    int rc, images;

    if (argc < 1)
        return usage_error("--count-images needs a job file");
    rc = read_job(a, argc, argv, &spec, &err);
    if (rc < 0)
        return failed(&err);
    rc = datacheck_count(a->models, spec, &images, stderr, &err);
    jobspec_free(spec);
    if (rc < 0)
        return failed(&err);
    printf("%d\n", images);
    return 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), n = strlen(end);

    return len > n && strcmp(name + len - n, end) == 0;
}

/* A job for a network alone. Required keys of a job file are filled in. */
static int network_spec(const struct args *a, const char *what, int argc, char **argv, struct jobspec **ret_spec, struct err *err)
{
    bool cfg = ends_with(what, ".cfg");
    char *path = cfg ? realpath(what, NULL) : NULL;
    json_t *root = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", cfg ? "cfg" : "preset", path ? path : what, "data", "train",
                             "annotations", "/", "images", "/", "train", "steps", 1, "batch", 1);
    int rc = !root ? err_set(err, ERR_DEVICE, "out of memory") : cfg && !path ? err_sys(err, "'%s'", what) : 0;

    for (int i = 0; i < argc && rc >= 0; i++)
        rc = jobspec_override(root, argv[i], err);
    if (rc >= 0)
        rc = jobspec_parse_for(a->models->presets, root, false, ret_spec, err);
    free(path);
    json_decref(root);
    return rc;
}

/* Knows the endings of all programs: layerlist_file() names a file that it cannot read. */
static bool holds_weights(const char *name)
{
    static const char *const ends[] = { ".safetensors", ".weights", ".pth", ".pt", ".pkl", ".bin", ".ckpt", ".onnx", ".h5" };

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return true;
    return false;
}

static int run_layers(const struct args *a, int argc, char **argv)
{
    const struct layerlist_options opt = { a->models, a->json };
    int classes = a->classes, rc;
    struct jobspec *spec = NULL;
    struct err err;

    if (argc < 1)
        return usage_error("--layers needs a job file, a preset, or a file of weights");
    if (holds_weights(argv[0])) {
        rc = layerlist_file(&opt, argv[0], a->json ? stdout : plain_out, &err);
    } else {
        bool alone = ends_with(argv[0], ".cfg") || !strpbrk(argv[0], "./");

        rc = alone ? network_spec(a, argv[0], argc - 1, argv + 1, &spec, &err) : read_job(a, argc, argv, &spec, &err);
        if (alone && classes == 0)
            classes = ends_with(argv[0], ".cfg") ? MODEL_OWN_CLASSES : COCO_CLASSES;
        if (rc >= 0)
            rc = layerlist_job(&opt, spec, classes, a->json ? stdout : plain_out, &err);
        jobspec_free(spec);
    }
    return rc < 0 ? failed(&err) : 0;
}

static int run_anchors(const struct args *a, int argc, char **argv)
{
    struct jobspec *spec;
    struct err err;
    int rc;

    if (argc < 1)
        return usage_error("--anchors needs a job file");
    rc = read_job(a, argc, argv, &spec, &err);
    if (rc < 0)
        return failed(&err);
    rc = anchorfit_run(a->models, spec, a->number, a->json, stdout, &err);
    jobspec_free(spec);
    return rc < 0 ? failed(&err) : 0;
}

/* For a job of epochs the steps are as many as samples are asked for: the images are not counted here. */
static int run_sample(const struct args *a, int argc, char **argv)
{
    int count = a->number > 0 ? a->number : SAMPLES, rc;
    struct jobspec *spec;
    struct err err;

    if (argc < 1 || !a->predict_opt.out_dir)
        return usage_error("--sample needs a job file and --out");
    rc = read_job(a, argc, argv, &spec, &err);
    if (rc < 0)
        return failed(&err);
    if (spec->train_steps < 0)
        spec->train_steps = count;
    rc = samples_draw(a->models, spec, count, a->predict_opt.out_dir, plain_out, &err);
    jobspec_free(spec);
    return rc < 0 ? failed(&err) : 0;
}

static int run_predict(const struct args *a, int argc, char **argv)
{
    struct predict_options opt = a->predict_opt;
    struct err err;

    if (!a->job_dir || !opt.out_dir || (argc < 1) != (opt.on || opt.split) || (opt.on && opt.split) ||
        ((opt.images || opt.format) && !opt.on))
        return usage_error("--predict needs --job-dir, --out and at least one image, or in their place --on SET or --split train|val");
    if (opt.split && strcmp(opt.split, "train") != 0 && strcmp(opt.split, "val") != 0)
        return usage_error("--split is train or val");
    opt.job_dir = a->job_dir;
    opt.models = a->models;
    opt.list = stdin;
    return predict_run(&opt, argv, argc, plain_out, &err) < 0 ? failed(&err) : 0;
}

static int run_export(const struct args *a)
{
    struct predict_options opt = a->predict_opt;
    struct err err;

    if (!a->job_dir || !opt.out_dir)
        return usage_error("--export needs --job-dir and --out");
    opt.job_dir = a->job_dir;
    opt.models = a->models;
    return predict_export(&opt, a->dialect, opt.out_dir, plain_out, &err) < 0 ? failed(&err) : 0;
}

static int run_trainer(const struct jobspec *spec, struct trainer_options opt)
{
    struct err err, why = { 0 };
    int rc = device_choose(spec->run_device, spec->run_isa, &opt.backend, &why, &err);

    if (rc >= 0 && why.code != 0 && strcmp(spec->run_precision, "tf32") == 0)
        rc = err_field(&err, ERR_UNSUPPORTED, "run.precision", "run.precision: tf32 needs a GPU: %s", why.msg);
    if (rc >= 0 && why.code != 0) {
        fprintf(stderr, "%s: run.device auto: the CPU is used: %s\n", called, why.msg);
        opt.why_cpu = why.msg;
    }
    rc = rc < 0 ? trainer_refuse(&opt, &err) : trainer_run(spec, &opt, &err);
    return rc < 0 ? failed(&err) : 0;
}

/* Chooses the precision as detd does for stored jobs. */
static int choose_precision(struct jobspec *spec, struct err *err)
{
    const bool unit = cpu_has_bf16_unit() && strcmp(spec->run_isa, "auto") == 0;
    const struct device_ops *backend;
    char *word;
    int rc;

    if (strcmp(spec->run_precision, "auto") != 0)
        return 0;
    rc = device_backend(spec->run_device, spec->run_isa, &backend, err);
    if (rc < 0)
        return rc;
    word = strdup(strncmp(backend->name, "cuda", 4) == 0 || unit ? "bf16" : "fp32");
    if (!word)
        return err_set(err, -ENOMEM, "out of memory");
    free(spec->run_precision);
    spec->run_precision = word;
    return 0;
}

/* Writes the job for a later predict, as a job folder has it. */
static int write_spec(const struct jobspec *spec, const char *dir, struct err *err)
{
    json_t *root = jobspec_json(spec);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL, path[4096];
    struct file_out *out;
    int rc = text ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    snprintf(path, sizeof path, "%s/spec.json", dir);
    if (rc >= 0)
        rc = file_out_open(path, &out, err);
    if (rc >= 0 && text) {
        file_out_printf(out, err, "%s\n", text);
        rc = file_out_commit(out, err);
    }
    free(text);
    json_decref(root);
    return rc;
}

static int run_alone(const struct args *a, int argc, char **argv)
{
    struct trainer_options opt = { .models = a->models, .nranks = 1, .attempt = 1, .control_fd = -1, .comm_fd = -1, .progress_fd = -1 };
    struct jobspec *spec;
    struct err err;
    int rc = read_job(a, argc, argv, &spec, &err);

    if (rc < 0)
        return failed(&err);
    opt.job_dir = a->dir ? a->dir : spec->name;
    if (mkdir(opt.job_dir, 0777) < 0 && access(opt.job_dir, W_OK) < 0) {
        err_sys(&err, "folder '%s'", opt.job_dir);
        rc = failed(&err);
    } else if (spec->run_ranks != 1) {
        rc = usage_error("alone means run.ranks=1; submit the job to detd for more");
    } else if (choose_precision(spec, &err) < 0 || write_spec(spec, opt.job_dir, &err) < 0) {
        rc = failed(&err);
    } else {
        rc = run_trainer(spec, opt);
    }
    jobspec_free(spec);
    return rc;
}

static int run_rank(const struct args *a)
{
    struct trainer_options opt = { .models = a->models,
                                   .job_dir = a->job_dir,
                                   .rank = a->rank,
                                   .nranks = a->ranks,
                                   .local_rank = a->local_rank,
                                   .attempt = a->attempt,
                                   .control_fd = WORKER_FD_CONTROL,
                                   .comm_fd = WORKER_FD_COMM,
                                   .progress_fd = WORKER_FD_PROGRESS };
    struct jobspec *spec;
    struct err err;
    int rc;

    prctl(PR_SET_NAME, "detd-worker"); /* executed from a descriptor, so the name would be its number */
    rc = read_stored(a, &spec, &err);
    if (rc < 0)
        return failed(&err);
    if (spec->eval_run) /* the checkpoint has the weights */
        jobspec_forget_inits(spec);
    rc = run_trainer(spec, opt);
    jobspec_free(spec);
    return rc;
}

static int number(const char *text, int *ret)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*text == '\0' || *end || n < 0 || n > 1 << 20)
        return -1;
    *ret = (int)n;
    return 0;
}

static int count(const char *text, int *ret)
{
    return number(text, ret) < 0 || *ret == 0 ? -1 : 0;
}

static int score(const char *text, double *ret)
{
    char *end;

    *ret = strtod(text, &end);
    return *text == '\0' || *end || !(*ret >= 0 && *ret <= 1) ? -1 : 0;
}

/* ---- options ---- */

enum kind { FLAG, TEXT, NUMBER, COUNT, SCORE };

#define AT(member) offsetof(struct args, member)
static const struct setting {
    const char *name;
    enum kind kind;
    size_t at; /* offset in struct args */
} settings[] = {
    { "check", FLAG, AT(check) },
    { "brief", FLAG, AT(brief) },
    { "files", TEXT, AT(files) },
    { "count-images", FLAG, AT(count) },
    { "predict", FLAG, AT(predict) },
    { "layers", FLAG, AT(layers) },
    { "anchors", FLAG, AT(anchors) },
    { "sample", FLAG, AT(sample) },
    { "count", COUNT, AT(number) },
    { "json", FLAG, AT(json) },
    { "classes", COUNT, AT(classes) },
    { "export", TEXT, AT(dialect) },
    { "dir", TEXT, AT(dir) },
    { "job-dir", TEXT, AT(job_dir) },
    { "out", TEXT, AT(predict_opt.out_dir) },
    { "conf", SCORE, AT(predict_opt.conf) },
    { "results-conf", SCORE, AT(predict_opt.results_conf) },
    { "on", TEXT, AT(predict_opt.on) },
    { "images", TEXT, AT(predict_opt.images) },
    { "format", TEXT, AT(predict_opt.format) },
    { "split", TEXT, AT(predict_opt.split) },
    { "no-pictures", FLAG, AT(predict_opt.no_pictures) },
    { "quiet", FLAG, AT(predict_opt.quiet) },
    { "enlarge", FLAG, AT(predict_opt.enlarge) },
    { "checkpoint", TEXT, AT(predict_opt.checkpoint) },
    { "rank", NUMBER, AT(rank) },
    { "ranks", NUMBER, AT(ranks) },
    { "attempt", NUMBER, AT(attempt) },
    { "local-rank", NUMBER, AT(local_rank) },
};
#undef AT

enum { SETTINGS = sizeof settings / sizeof *settings, FIRST = 256 /* no short option */ };

/* Returns 0, or -1 if the value is out of range. */
static int set(const struct setting *s, struct args *a, const char *value)
{
    void *to = (char *)a + s->at;

    switch (s->kind) {
    case FLAG:
        *(bool *)to = true;
        return 0;
    case TEXT:
        *(const char **)to = value;
        return 0;
    case SCORE:
        return score(value, to);
    case COUNT:
        return count(value, to);
    default:
        return number(value, to);
    }
}

/* Returns -1, or the status to exit with. */
static int parse(int argc, char **argv, struct args *a)
{
    struct option options[SETTINGS + 2] = { { "help", no_argument, NULL, 'h' } };
    int c, bad = 0;

    for (int i = 0; i < SETTINGS; i++)
        options[i + 1] = (struct option){ settings[i].name, settings[i].kind == FLAG ? no_argument : required_argument, NULL, FIRST + i };
    while ((c = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
        if (c == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (c < FIRST)
            return usage_error("unknown option");
        bad |= set(&settings[c - FIRST], a, optarg);
    }
    return bad ? usage_error("an option's number is out of range") : -1;
}

static int run(int argc, char **argv, const struct model_registry *models)
{
    struct args a = { .models = models, .predict_opt = { .conf = 0.25, .results_conf = NAN, .checkpoint = "best" } };
    int status = parse(argc, argv, &a);

    if (status >= 0)
        return status;
    argc -= optind;
    argv += optind;
    if (a.check)
        return run_check(&a, argc, argv);
    if (a.count)
        return run_count(&a, argc, argv);
    if (a.layers)
        return run_layers(&a, argc, argv);
    if (a.anchors)
        return run_anchors(&a, argc, argv);
    if (a.sample)
        return run_sample(&a, argc, argv);
    if (a.dialect)
        return run_export(&a);
    if (a.predict)
        return run_predict(&a, argc, argv);
    if (a.job_dir && a.ranks > 0 && a.rank < a.ranks)
        return run_rank(&a);
    if (argc < 1)
        return usage_error("a job file is needed");
    return run_alone(&a, argc, argv);
}

int worker_main(int argc, char **argv, const struct model_registry *models)
{
    FILE *plain_err;
    int status;

    start_tool();
    if (strcmp(argv[0], "detctl") == 0)
        called = argv[0];
    plain_out = plain_open(STDOUT_FILENO);
    plain_err = plain_open(STDERR_FILENO);
    if (!plain_out || !plain_err)
        return 1;
    stderr = plain_err;
    status = run(argc, argv, models);
    if (output_end(stdout, called) < 0 || output_end(plain_out, called) < 0)
        status = status ? status : 1;
    return status;
}
