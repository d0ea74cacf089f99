/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/label.c - note, tag: people's words about their jobs. */
#include <stdio.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"

enum { WORDS_BYTES = 4096 };

/* Joins the words with blanks. Returns CODE_USAGE if they are longer than any text may be. */
static int join(struct context *ctx, int count, char **words, char ret[WORDS_BYTES])
{
    size_t len = 0;

    ret[0] = '\0';
    for (int i = 0; i < count; i++) {
        size_t more = strlen(words[i]);

        if (len + more + 2 > WORDS_BYTES)
            return misuse(ctx, "too many words");
        len += (size_t)snprintf(ret + len, WORDS_BYTES - len, "%s%s", i ? " " : "", words[i]);
    }
    return 0;
}

static int label(struct context *ctx, int64_t id, const char *member, const char *text)
{
    json_t *result, *tag;
    size_t i;
    int rc = call(ctx, "job.label", json_pack("{s:I, s:s}", "id", (json_int_t)id, member, text), &result);

    if (rc)
        return rc;
    printf("job %lld: ", (long long)id);
    if (strcmp(member, "note") == 0) {
        print_clean(stdout, *text_of(result, "note") ? text_of(result, "note") : "no note");
    } else {
        fputs(json_array_size(json_object_get(result, "tags")) ? "" : "no tags", stdout);
        json_array_foreach (json_object_get(result, "tags"), i, tag) {
            printf("%s%s", i ? " " : "", json_string_value(tag));
        }
    }
    putchar('\n');
    json_decref(result);
    return CODE_DONE;
}

/* Does not use getopt: -base takes a tag away, and a note may begin with anything. */
static int label_with(struct context *ctx, int argc, char **argv, const char *member)
{
    char text[WORDS_BYTES];
    int64_t id = 0;
    int rc;

    if (argc < 3)
        return misuse(ctx,
                      strcmp(member, "note") == 0 ? "a job id and a text are needed; '' takes it away" : "a job id and tags are needed");
    if ((rc = take_id(ctx, argv[1], &id)) || (rc = join(ctx, argc - 2, argv + 2, text)))
        return rc;
    return label(ctx, id, member, text);
}

int command_note(struct context *ctx, int argc, char **argv)
{
    return label_with(ctx, argc, argv, "note");
}

int command_tag(struct context *ctx, int argc, char **argv)
{
    return label_with(ctx, argc, argv, "tags");
}
