#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/job/jobtext.h"
#include "proto/job/jobspec_table.h"

/* ---- reading ---- */

/* Reads the whole file, at most JOB_MAX_BYTES; the caller frees. */
static int slurp(const char *path, char **ret_text, size_t *ret_len, struct err *err)
{
    struct stat st;
    size_t len = 0;
    ssize_t n = 0;
    char *text = NULL;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */

    if (fd < 0)
        return err_sys(err, "open '%s'", path);
    if (fstat(fd, &st) < 0)
        rc = err_sys(err, "stat '%s'", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(err, ERR_INPUT, "'%s' is not a regular file", path);
    else if (!(text = malloc(JOB_MAX_BYTES + 1)))
        rc = err_set(err, -ENOMEM, "out of memory");
    while (rc == 0 && len <= JOB_MAX_BYTES && (n = read(fd, text + len, JOB_MAX_BYTES + 1 - len)) > 0)
        len += (size_t)n;
    if (rc == 0 && n < 0)
        rc = err_sys(err, "read '%s'", path);
    else if (rc == 0 && len > JOB_MAX_BYTES)
        rc = err_set(err, ERR_INPUT, "'%s' is larger than %d bytes", path, JOB_MAX_BYTES);
    close(fd);
    if (rc < 0) {
        free(text);
        return rc;
    }
    *ret_text = text;
    *ret_len = len;
    return 0;
}

int jobspec_read(const char *path, json_t **ret_root, struct err *err)
{
    json_error_t where;
    size_t len = 0;
    char *text = NULL;
    int rc = slurp(path, &text, &len, err);

    if (rc < 0)
        return rc;
    jobtext_blank(text, len);
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    rc = root ? 0 : jobtext_explain(text, len, path, err);
    free(text);
    if (rc < 0)
        return rc;
    if (!root)
        return err_set(err, ERR_INPUT, "%s:%d:%d: %s", path, where.line, where.column, where.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, ERR_INPUT, "%s: a job must be a JSON object", path);
    }
    *ret_root = root;
    return 0;
}

/* ---- changing single keys of the nested object ---- */

/* The object that holds the last part of path. If it is missing, it is made (create), or NULL is returned. *ret_name:
 * the last part. */
static json_t *holder(json_t *root, const char *path, int create, const char **ret_name)
{
    const char *dot;
    json_t *obj = root;

    for (; obj && (dot = strchr(path, '.')); path = dot + 1) {
        char group[128];
        json_t *next;

        snprintf(group, sizeof group, "%.*s", (int)(dot - path), path);
        next = json_object_get(obj, group);
        if (!next && create && json_object_set_new(obj, group, json_object()) == 0)
            next = json_object_get(obj, group);
        obj = json_is_object(next) ? next : NULL;
    }
    *ret_name = path;
    return obj;
}

/* Refuses a text that is meant as a number or a list, and is not JSON. As a string it would only be refused for being a
 * string. */
static int refuse_near_json(const struct job_key *k, const char *text, struct err *err)
{
    bool either = k->type == TYPE_SIZE || k->type == TYPE_INTS, one = k->type == TYPE_INT || k->type == TYPE_REAL || either,
         list = k->type == TYPE_REALS || either;
    char *end;
    double x = strtod(text, &end);

    if (one && end != text && *end == '\0' && isfinite(x))
        return job_error(err, k->path, "'%.40s' is not how JSON writes a number; %.15g is", text, x);
    if (list && text[0] == '[')
        return job_error(err, k->path, "'%.80s' is not how JSON writes a list of numbers; [0.8, 0.9] is one", text);
    return 0;
}

/* The value of an assignment: JSON, else a string. Keys that are text take anything as text. */
static int value_of(const struct job_key *k, const char *path, const char *text, json_t **ret, struct err *err)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);

    if (!v && k && refuse_near_json(k, text, err) < 0)
        return ERR_INPUT;
    if (v && k && (k->type <= TYPE_ENUM || k->type == TYPE_MAP || (k->type == TYPE_STRS && !json_is_array(v))) && !json_is_string(v) &&
        !json_is_null(v) && !json_is_object(v)) {
        json_decref(v);
        v = NULL;
    }
    *ret = v ? v : json_string(text);
    return *ret ? 0 : err_field(err, ERR_INPUT, path, "%s: not valid UTF-8", path);
}

/* The key that is an object with the member in `path`, for example "run.env.PATH"; NULL: no such key. */
static const struct job_key *holder_of_member(const char *path)
{
    static const int objects[] = { JOB_KEY_run_env, JOB_KEY_train_class_weights };

    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        const struct job_key *k = &job_keys[objects[i]];
        size_t len = strlen(k->path);

        if (strncmp(path, k->path, len) == 0 && path[len] == '.' && path[len + 1] && !strchr(path + len + 1, '.'))
            return k;
    }
    return NULL;
}

int jobspec_override(json_t *root, const char *assignment, struct err *err)
{
    const char *equals = strchr(assignment, '='), *name;
    size_t len = equals ? (size_t)(equals - assignment) : 0;
    char path[160];

    if (len == 0 || len >= sizeof path)
        return err_set(err, ERR_INPUT, "'%.100s' is not of the form key=value", assignment);
    snprintf(path, sizeof path, "%.*s", (int)len, assignment);

    const struct job_key *k = job_key_find(path, len);
    if (!k)
        k = holder_of_member(path);
    if (!k && !job_key_is_group(path, len))
        return job_key_unknown(err, path);
    json_t *value, *obj;
    if (value_of(k, path, equals + 1, &value, err) < 0)
        return ERR_INPUT;
    obj = holder(root, path, 1, &name);
    if (!obj || json_object_set_new(obj, name, value) < 0) {
        if (!obj)
            json_decref(value);
        return err_field(err, ERR_INPUT, path, obj ? "%s: not valid UTF-8" : "%s: its parent is not an object", path);
    }
    return 0;
}

/* Takes `~/` off the text. *ret_dir: the home folder of the calling user, to which the rest is relative. */
static int take_tilde(const char *key, const char **text, const char **ret_dir, struct err *err)
{
    const char *home = getenv("HOME");

    if ((*text)[1] != '/' && (*text)[1] != '\0')
        return err_field(err, ERR_INPUT, key, "%s: '%.80s': only ~/ is supported; write the folder out", key, *text);
    if (!home || home[0] != '/')
        return err_field(err, ERR_INPUT, key, "%s: '%.80s': HOME is not set to a folder", key, *text);
    *text += 1 + strspn(*text + 1, "/");
    *ret_dir = home;
    return 0;
}

/* True for weights that are named by another job. The submitting client replaces them by a path. */
static bool is_job(const char *key, const char *text)
{
    return strncmp(key, "model.init", 10) == 0 && strncmp(text, "job:", 4) == 0;
}

int jobspec_absolute(json_t *root, const char *dir, struct err *err)
{
    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        const struct job_key *k = &job_keys[i];
        const char *name, *text, *from = dir;
        json_t *obj, *value;
        char *joined;

        if (k->type != TYPE_PATH || !(obj = holder(root, k->path, 0, &name)))
            continue;
        text = json_string_value(json_object_get(obj, name));
        if (!text || text[0] == '/' || text[0] == '\0' || is_job(k->path, text))
            continue;
        if (text[0] == '~' && take_tilde(k->path, &text, &from, err) < 0)
            return ERR_INPUT;
        while (strncmp(text, "./", 2) == 0 && text[2] != '\0')
            text += 2;
        if (asprintf(&joined, "%s%s%s", from, strcmp(from, "/") == 0 ? "" : "/", text) < 0)
            return err_set(err, -ENOMEM, "out of memory");
        value = json_string(joined);
        free(joined);
        if (!value || json_object_set_new(obj, name, value) < 0)
            return err_field(err, ERR_INPUT, k->path, "%s: the path is not valid UTF-8", k->path);
    }
    return 0;
}
