/* client/layers.c - layers: the arrays of a job's network, of a job file's, of a preset, or of a file of weights; detd-worker lists them. */
#include <ctype.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/command.h"
#include "client/predict.h"
#include "client/worker.h"

static bool is_number(const char *text)
{
    size_t len = strspn(text, "0123456789");

    return len > 0 && text[len] == '\0';
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* What is meant, as a name for detd-worker: the file of a job's keys, FILE, FILE.json, or a preset, as is what is no file. */
static int find(struct context *ctx, const char *what, char ret_name[PATH_MAX])
{
    char *folder;
    int64_t id;
    int rc;

    if (!is_number(what)) {
        if (!is_file(what) && snprintf(ret_name, PATH_MAX, "%s.json", what) < PATH_MAX && is_file(ret_name))
            what = ret_name;
        return is_file(what) && realpath(what, ret_name) ? 0 : snprintf(ret_name, PATH_MAX, "%s", what) < 0;
    }
    if ((rc = take_id(ctx, what, &id)) || (rc = job_folder(ctx, id, &folder)))
        return rc;
    snprintf(ret_name, PATH_MAX, "%s/spec.json", folder);
    free(folder);
    return 0;
}

int command_layers(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { "classes", required_argument, NULL, 'c' }, { 0 } };
    char name[PATH_MAX], *classes = NULL, **words;
    bool json = false;
    int rc, o, n = 1;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        json |= o == 'j';
        classes = o == 'c' ? optarg : classes;
    }
    if (optind == argc)
        return misuse(ctx, "a job, a file or a preset is needed");
    if (classes && !is_number(classes))
        return misuse(ctx, "--classes is a count, not '%s'", classes);
    if ((rc = find(ctx, argv[optind], name)))
        return rc;
    words = calloc((size_t)(argc - optind) + 8, sizeof *words);
    if (!words)
        abort();
    words[n++] = (char *)"--layers";
    if (json)
        words[n++] = (char *)"--json";
    if (classes) {
        words[n++] = (char *)"--classes";
        words[n++] = classes;
    }
    words[n++] = name;
    for (int i = optind + 1; i < argc; i++)
        words[n++] = argv[i];
    rc = worker_run(words);
    free(words);
    return rc;
}
