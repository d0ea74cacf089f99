#include "daemon/base/config.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/gpulock.h"
#include "proto/launch.h"
#include "proto/tier.h"

enum {
    FILE_MAX_BYTES = 64 << 10,
    SLOTS_MAX = 4096,
    USER_MAX = 1000000,
    USER_QUEUED = 1000,
    PRIORITY_MAX = 1000,
    TIME_LIMIT_MAX_S = 1000000000, /* that of run.time_limit */
    GPU_DEADLINE_S = 30,
    GPU_DEADLINE_MAX = 600,
    LEAVE_DEADLINE_S = 600,
    LEAVE_DEADLINE_MAX = 86400,
    KEEP_MAX_DAYS = 36500,
    LOG_MIB = 64,
    LOG_MAX_MIB = 1 << 20,
    REPORT_MIB = 1024,
    REPORT_MAX_MIB = 1 << 20,
    USER_STORED_MAX_MIB = 1 << 30
};

/* ---- values ---- */

struct key {
    const char *name, *help;
    int (*set)(const struct key *key, void *to, const char *value, struct err *err);
    size_t at; /* offset in struct config */
    int max;   /* maximum of a number, or of a path's bytes */
};

/* A relative path begins at the folder in which detd was started: detd changes its folder later. */
static int set_path(const struct key *key, void *to, const char *value, struct err *err)
{
    char whole[2 * CONFIG_PATH_MAX], here[CONFIG_PATH_MAX + 1] = "";
    const char *name = key->name;
    size_t max = (size_t)key->max;

    if (!value[0])
        return err_field(err, ERR_INPUT, name, "%s: must not be empty", name);
    if (value[0] != '/' && !getcwd(here, sizeof here))
        return err_sys(err, "%s: working folder", name);
    if (snprintf(whole, sizeof whole, "%s%s%s", here, here[0] ? "/" : "", value) >= (int)sizeof whole || strlen(whole) > max)
        return err_field(err, ERR_INPUT, name, "%s: '%.400s' has %zu bytes; %s has at most %zu", name, whole, strlen(whole),
                         max == CONFIG_SOCKET_MAX ? "the name of a Unix socket" : "a path", max);
    memcpy(to, whole, strlen(whole) + 1);
    return 0;
}

static int set_number(const struct key *key, void *to, const char *value, struct err *err)
{
    char *end;
    long n = strtol(value, &end, 10);

    if (*end || end == value || n < 1 || n > key->max)
        return err_field(err, ERR_INPUT, key->name, "%s: must be 1 to %d, is '%.40s'", key->name, key->max, value);
    *(int *)to = (int)n;
    return 0;
}

static int set_priority(const struct key *key, void *to, const char *value, struct err *err)
{
    char *end;
    long n = strtol(value, &end, 10);

    if (*end || end == value || n < 0 || n > key->max)
        return err_field(err, ERR_INPUT, key->name, "%s: must be 0 to %d, is '%.40s'", key->name, key->max, value);
    *(int *)to = (int)n;
    return 0;
}

static int set_switch(const struct key *key, void *to, const char *value, struct err *err)
{
    bool yes = strcmp(value, "on") == 0 || strcmp(value, "yes") == 0;

    if (!yes && strcmp(value, "off") != 0 && strcmp(value, "no") != 0)
        return err_field(err, ERR_INPUT, key->name, "%s: must be on or off, is '%.40s'", key->name, value);
    *(bool *)to = yes;
    return 0;
}

static int set_tier(const struct key *key, void *to, const char *value, struct err *err)
{
    int tier = tier_parse(value);

    if (tier < 0)
        return err_field(err, ERR_INPUT, key->name, "tier: must be off, rerun or world, is '%.40s'", value);
    *(int *)to = tier;
    return 0;
}

static int set_read(const struct key *key, void *to, const char *value, struct err *err)
{
    if (strcmp(value, "everyone") != 0 && strcmp(value, "admins") != 0)
        return err_field(err, ERR_INPUT, key->name, "read: must be everyone or admins, is '%.40s'", value);
    *(bool *)to = strcmp(value, "everyone") == 0;
    return 0;
}

#define AT(member) offsetof(struct config, member)
static const struct key keys[] = {
    { "state", "folder of the database and the jobs, on a local disk", set_path, AT(state), CONFIG_PATH_MAX },
    { "jobs_mount", "yes: detd does not start while the folder `jobs` in its state folder is no mount point; no (default)", set_switch,
      AT(jobs_mount), 0 },
    { "socket", "control socket, at most 107 bytes", set_path, AT(socket), CONFIG_SOCKET_MAX },
    { "launch", "socket of detd-launch, which starts jobs as their submitters; system daemon only; default: " LAUNCH_SOCKET, set_path,
      AT(launch), CONFIG_SOCKET_MAX },
    { "slots", "CPU slots that jobs share; default: the CPUs that the affinity mask and the cgroup's quota allow", set_number, AT(slots),
      SLOTS_MAX },
    { "gpu_locks", "folder of the locks of GPUs; system daemon only; default: " GPULOCK_SYSTEM, set_path, AT(gpu_locks), CONFIG_PATH_MAX },
    { "gpu_deadline", "seconds that the GPU driver has to answer, after which no GPU is granted; default: 30", set_number,
      AT(gpu_deadline_s), GPU_DEADLINE_MAX },
    { "leave_deadline", "seconds for the checkpoint of a job that makes room for another job or must leave a GPU; default: 600", set_number,
      AT(leave_deadline_s), LEAVE_DEADLINE_MAX },
    { "tier", "deterministic tier of new jobs, until `detctl deterministic` changes it: off, rerun (default) or world", set_tier, AT(tier),
      0 },
    { "fair_share",
      "on (default): among jobs of equal priority, the user who was granted fewer slot hours in the last 7 days goes first; off",
      set_switch, AT(fair_share), 0 },
    { "user_priority", "highest run.priority that a user other than an admin may give; default: 0", set_priority, AT(user_priority),
      PRIORITY_MAX },
    { "user_queued", "maximum number of waiting and paused jobs of a user other than an admin; default: 1000", set_number, AT(user_queued),
      USER_MAX },
    { "user_running", "maximum number of running jobs of a user other than an admin; default: no limit", set_number, AT(user_running),
      USER_MAX },
    { "user_gpus", "maximum number of GPUs that the jobs of a user other than an admin hold together; default: no limit", set_number,
      AT(user_gpus), USER_MAX },
    { "time_limit_max",
      "maximum run.time_limit of a user other than an admin, in seconds; a job without a limit gets this one; default: no limit",
      set_number, AT(time_limit_max_s), TIME_LIMIT_MAX_S },
    { "user_stored",
      "approximate maximum size of the jobs of a user other than an admin in the database, in MiB; a further job is refused; default: "
      "16384",
      set_number, AT(user_stored_mib), USER_STORED_MAX_MIB },
    { "log_max", "maximum size of the log of a rank, in MiB; the older half of a larger log is dropped; default: 64", set_number,
      AT(log_max_mib), LOG_MAX_MIB },
    { "report_max",
      "approximate maximum size of the losses, scores and events of a job in the database, in MiB; later ones are dropped; default: 1024",
      set_number, AT(report_max_mib), REPORT_MAX_MIB },
    { "keep_jobs", "days from the end of a job until it is removed, as by `detctl rm`; default: never", set_number, AT(keep.jobs),
      KEEP_MAX_DAYS },
    { "keep_points", "days from the end of a job until all but the last point of its curves are removed; default: never", set_number,
      AT(keep.points), KEEP_MAX_DAYS },
    { "keep_logs", "days from the end of a job until the logs of its ranks are removed; default: never", set_number, AT(keep.logs),
      KEEP_MAX_DAYS },
    { "keep_events", "days until an event is removed; default: never", set_number, AT(keep.events), KEEP_MAX_DAYS },
    { "read", "users that may look at jobs, everyone (default) or admins; system daemon only", set_read, AT(everyone_reads), 0 },
};
#undef AT

static int set(struct config *cfg, const char *name, const char *value, struct err *err)
{
    for (const struct key *k = keys; k < keys + sizeof keys / sizeof *keys; k++)
        if (strcmp(k->name, name) == 0)
            return k->set(k, (char *)cfg + k->at, value, err);
    return err_field(err, ERR_INPUT, name, "unknown key '%.40s'", name);
}

/* ---- file ---- */

static char *trim(char *s)
{
    char *end = s + strlen(s);

    while (end > s && strchr(" \t\r", end[-1]))
        end--;
    *end = '\0';
    return s + strspn(s, " \t");
}

static int parse_line(char *line, struct config *cfg, struct err *err)
{
    char *equals, *name;

    line[strcspn(line, "#")] = '\0';
    name = trim(line);
    if (!name[0])
        return 0;
    equals = strchr(name, '=');
    if (!equals)
        return err_set(err, ERR_INPUT, "'%.40s': expected key = value", name);
    *equals = '\0';
    name = trim(name);
    return set(cfg, name, trim(equals + 1), err);
}

int config_parse(const char *text, const char *path, struct config *cfg, struct err *err)
{
    int rc = 0, number = 1;

    while (rc == 0 && *text) {
        size_t len = strcspn(text, "\n");
        char *line = strndup(text, len);

        rc = line ? parse_line(line, cfg, err) : err_set(err, -ENOMEM, "out of memory");
        if (rc < 0)
            err_prefix(err, "%s:%d", path, number);
        free(line);
        text += len + (text[len] == '\n');
        number++;
    }
    return rc;
}

static int read_file(const char *path, bool must_exist, struct config *cfg, struct err *err)
{
    char *text = malloc(FILE_MAX_BYTES + 1);
    FILE *f = fopen(path, "re");
    size_t n = 0;
    int rc = 0;

    if (!f && (must_exist || errno != ENOENT))
        rc = err_sys(err, "open '%s'", path);
    else if (!text)
        rc = err_set(err, -ENOMEM, "out of memory");
    if (f && rc == 0) {
        n = fread(text, 1, FILE_MAX_BYTES + 1, f);
        if (ferror(f))
            rc = err_sys(err, "read '%s'", path);
        else if (n > FILE_MAX_BYTES)
            rc = err_set(err, ERR_INPUT, "'%s' has more than %d bytes", path, FILE_MAX_BYTES);
        else if (memchr(text, '\0', n))
            rc = err_set(err, ERR_INPUT, "'%s' is not a text", path);
    }
    if (f && rc == 0) {
        text[n] = '\0';
        rc = config_parse(text, path, cfg, err);
    }
    if (f)
        fclose(f);
    free(text);
    return rc;
}

/* ---- defaults ---- */

static int user_path(struct config *cfg, const char *variable, const char *under_home, const char *rest, const char *name, struct err *err)
{
    const char *base = getenv(variable), *home = getenv("HOME");
    char path[CONFIG_PATH_MAX + 1];
    int n;

    if (base && base[0] == '/')
        n = snprintf(path, sizeof path, "%s/%s", base, rest);
    else if (under_home && home && home[0] == '/')
        n = snprintf(path, sizeof path, "%s/%s/%s", home, under_home, rest);
    else
        return err_field(err, ERR_INPUT, name, "%s: %s is not set; give --%s", name, variable, name);
    if (n >= (int)sizeof path)
        return err_field(err, ERR_INPUT, name, "%s: the path is too long", name);
    return set(cfg, name, path, err);
}

static int fill_paths(struct config *cfg, struct err *err)
{
    int rc = 0;

    if (!cfg->state[0])
        rc =
            cfg->private ? user_path(cfg, "XDG_STATE_HOME", ".local/state", "detd", "state", err) : set(cfg, "state", "/var/lib/detd", err);
    if (rc == 0 && !cfg->private && !cfg->launch[0])
        rc = set(cfg, "launch", LAUNCH_SOCKET, err);
    if (rc == 0 && !cfg->socket[0])
        rc = cfg->private ? user_path(cfg, "XDG_RUNTIME_DIR", NULL, "detd/detd.sock", "socket", err)
                          : set(cfg, "socket", "/run/detd/detd.sock", err);
    if (rc == 0 && !cfg->gpu_locks[0])
        rc = set(cfg, "gpu_locks", GPULOCK_SYSTEM, err);
    return rc;
}

/* ---- options ---- */

struct options {
    const char *state, *socket, *config;
    bool system;
};

/* Only -h is a letter. Any other letter is an unknown option, even if other programs have it for one of these long
 * options. */
enum { STATE = 256, SOCKET, SETTINGS, SYSTEM, PROBE, WATCH, VERSION, HELP = 'h' };
static const struct option option_names[] = { { "state", 1, 0, STATE },     { "socket", 1, 0, SOCKET },    { "config", 1, 0, SETTINGS },
                                              { "system", 0, 0, SYSTEM },   { "probe-gpus", 0, 0, PROBE }, { "watch-gpus", 0, 0, WATCH },
                                              { "version", 0, 0, VERSION }, { "help", 0, 0, HELP },        { 0 } };

/* word: the word on the command line; used for a long option. */
static int refuse_option(const char *word, struct err *err)
{
    for (const struct option *n = option_names; n->name; n++)
        if (optopt == n->val)
            return err_set(err, ERR_INPUT, "--%s takes no value; see detd --help", n->name);
    if (optopt)
        return err_set(err, ERR_INPUT, "unknown option '-%c'; see detd --help", optopt);
    return err_set(err, ERR_INPUT, "unknown option '%.400s'; see detd --help", word);
}

static int take_option(int c, const char *word, struct options *o, enum config_action *ret_action, struct err *err)
{
    switch (c) {
    case STATE:
        o->state = optarg;
        return 0;
    case SOCKET:
        o->socket = optarg;
        return 0;
    case SETTINGS:
        o->config = optarg;
        return optarg[0] ? 0 : err_set(err, ERR_INPUT, "config: must not be empty");
    case SYSTEM:
        o->system = true;
        return 0;
    case PROBE:
        *ret_action = CONFIG_PROBE;
        return 0;
    case WATCH:
        *ret_action = CONFIG_WATCH;
        return 0;
    case VERSION:
        *ret_action = CONFIG_VERSION;
        return 0;
    case HELP:
        *ret_action = CONFIG_HELP;
        return 0;
    case ':':
        return err_set(err, ERR_INPUT, "%s needs a value", word);
    default:
        return refuse_option(word, err);
    }
}

static int read_options(int argc, char **argv, struct options *o, enum config_action *ret_action, struct err *err)
{
    int c, rc = 0;

    optind = 0; /* begins again with the first option */
    opterr = 0;
    while (rc == 0 && (c = getopt_long(argc, argv, ":h", option_names, NULL)) != -1)
        rc = take_option(c, argv[optind - 1], o, ret_action, err);
    if (rc == 0 && optind < argc)
        rc = err_set(err, ERR_INPUT, "unexpected argument '%.400s'; see detd --help", argv[optind]);
    return rc;
}

int config_read(int argc, char **argv, struct config *ret, enum config_action *ret_action, struct err *err)
{
    struct options o = { 0 };
    int rc;

    memset(ret, 0, sizeof *ret);
    *ret_action = CONFIG_RUN;
    rc = read_options(argc, argv, &o, ret_action, err);
    if (rc < 0 || *ret_action != CONFIG_RUN)
        return rc;
    ret->tier = 1;
    ret->gpu_deadline_s = GPU_DEADLINE_S;
    ret->leave_deadline_s = LEAVE_DEADLINE_S;
    ret->log_max_mib = LOG_MIB;
    ret->report_max_mib = REPORT_MIB;
    ret->everyone_reads = true;
    ret->fair_share = true;
    ret->user_queued = USER_QUEUED;
    ret->private = !o.system && (o.state || o.socket || geteuid() != 0);
    if (o.config)
        rc = read_file(o.config, true, ret, err);
    else if (!ret->private)
        rc = read_file("/etc/detd.conf", false, ret, err);
    if (rc == 0 && o.state)
        rc = set(ret, "state", o.state, err);
    if (rc == 0 && o.socket)
        rc = set(ret, "socket", o.socket, err);
    return rc < 0 ? rc : fill_paths(ret, err);
}

void config_help(FILE *out)
{
    fprintf(out, "usage: detd [--state DIR] [--socket PATH] [--config FILE] [--system]\n"
                 "\n"
                 "Runs training jobs on this node and keeps their losses. Stays in the foreground; SIGTERM or Ctrl-C stops it and leaves "
                 "jobs running:\n"
                 "the next detd takes them over.\n"
                 "\n"
                 "  --state DIR     folder of the database and the jobs, on a local disk\n"
                 "  --socket PATH   control socket; give the same to detctl, or in DETD_SOCKET\n"
                 "  --config FILE   settings, see below\n"
                 "  --system        serve the node: every user may look, and may submit where detd-launch runs; the default for "
                 "root without --state and --socket\n"
                 "  --probe-gpus    print the GPUs of the node, a JSON line each, and exit\n"
                 "  --watch-gpus    the same for each line of stdin, and errors of GPUs as they come; detd runs itself this way\n"
                 "  --version, --help\n"
                 "\n"
                 "With --state or --socket, or for any user but root, the daemon is private: it serves its own user only. Defaults:\n"
                 "  private  $XDG_STATE_HOME/detd (~/.local/state/detd)    $XDG_RUNTIME_DIR/detd/detd.sock\n"
                 "  system   /var/lib/detd                                 /run/detd/detd.sock          settings in /etc/detd.conf\n"
                 "\n"
                 "The settings file has lines `key = value`, and comments after #. Options on the command line win.\n");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        fprintf(out, "  %-12s %s\n", keys[i].name, keys[i].help);
    fprintf(out, "\nexample: detd --state ~/detd --socket ~/detd/detd.sock\n");
}
