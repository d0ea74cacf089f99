/* SPDX-License-Identifier: Apache-2.0 */ /* The command table: every row is complete, and docs/man/detctl.1 is written
 * from it (DETD_GENERATE=1 rewrites its parts). uses: proto client */
#include <fcntl.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/base/command.h"
#include "proto/err.h"
#include "tests/stand/harness.h"

static void rows_are_complete(void **state)
{
    char want[64];

    (void)state;
    for (const struct command *c = commands; c->name; c++) {
        assert_true(c->args && *c->help && c->options && c->run);
        snprintf(want, sizeof want, "  detctl %s ", c->name);
        if (strncmp(c->example, want, strlen(want) - 1) != 0 || c->example[strlen(c->example) - 1] != '\n')
            fail_msg("example of %s is no command line of it", c->name);
        for (const struct command *other = commands; other != c; other++)
            assert_string_not_equal(other->name, c->name);
    }
}

static void exit_codes(void **state)
{
    struct err err = { 0 };

    (void)state;
    err_set(&err, -107, "no daemon"); /* ENOTCONN */
    assert_int_equal(complain(&err), CODE_NO_DAEMON);
    err_set(&err, ERR_INPUT, "bad");
    assert_int_equal(complain(&err), CODE_REFUSED);
    err_set(&err, -4, "interrupted"); /* EINTR */
    assert_int_equal(complain(&err), CODE_INTERRUPTED);
}

static void ids_are_whole_numbers_above_zero(void **state)
{
    static const char *const refused[] = { "", "x", "7x", "7 ", "0", "-7", "7.5", "0x7", "9223372036854775808" };
    struct context ctx = { .command = commands };
    int64_t id = 0;

    (void)state;
    assert_int_equal(take_id(&ctx, "7", &id), 0);
    assert_int_equal(id, 7);
    assert_int_equal(take_id(&ctx, "9223372036854775807", &id), 0);
    assert_true(id == INT64_MAX);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(take_id(&ctx, refused[i], &id), CODE_USAGE);
    assert_true(id == INT64_MAX);
}

/* ---- command lines ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[TEMP_MAX + 32];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

/* The command line of an example, up to the first shell operator. */
static int run_example(const struct command *c)
{
    struct context ctx = { .socket = "nobody", .command = c };
    char line[256], *argv[16], *rest = line;
    int argc = 0;

    snprintf(line, sizeof line, "%s", c->example + strlen("  detctl "));
    line[strcspn(line, "|>\n")] = '\0';
    while (argc < 15 && (argv[argc] = strtok_r(rest, " ", &rest)))
        argc++;
    argv[argc] = NULL;
    optind = 0; /* as for a new program */
    return c->run(&ctx, argc, argv);
}

/* The options and files of the examples are accepted; then the connection fails, because no daemon listens. */
static void examples_come_as_far_as_the_socket(void **state)
{
    char folder[TEMP_MAX], command[TEMP_MAX + 16];
    int home = open(".", O_RDONLY | O_DIRECTORY);
    const char *wrong = NULL;

    (void)state;
    assert_non_null(mkdtemp(temp_path(folder, sizeof folder, "detd-commands-XXXXXX")));
    write_file(
        folder, "bccd.json",
        "{\"name\": \"x\", \"model\": {\"preset\": \"yolov3_tiny\"}, \"data\": {\"train\": {\"annotations\": \"a.json\", \"images\": "
        "\".\"}}, \"train\": {\"steps\": 8, \"batch\": 8}}");
    write_file(folder, "a.json", "{}");
    assert_int_equal(chdir(folder), 0);
    for (const struct command *c = commands; c->name && !wrong; c++) {
        if (strcmp(c->name, "check") == 0 || strcmp(c->name, "layers") == 0 || strcmp(c->name, "anchors") == 0 ||
            strcmp(c->name, "sample") == 0 || strcmp(c->name, "completion") == 0) /* these ask detd-worker and never detd */
            continue;
        if (run_example(c) != CODE_NO_DAEMON)
            wrong = c->name;
        signal(SIGINT, SIG_DFL); /* commands that wait have caught the signals */
        signal(SIGTERM, SIG_DFL);
    }
    assert_int_equal(fchdir(home), 0);
    close(home);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    if (wrong)
        fail_msg("%s", wrong);
}

/* ---- the manual ---- */

static void roff(FILE *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if ((p == text || p[-1] == '\n') && (*p == '.' || *p == '\''))
            fputs("\\&", out);
        if (*p == '-')
            fputs("\\-", out);
        else if (*p == '\\')
            fputs("\\e", out);
        else
            fputc(*p, out);
    }
}

static void write_commands(FILE *out)
{
    for (const struct command *c = commands; c->name; c++) {
        fputs(".SS ", out);
        roff(out, c->name);
        fputs("\n.B ", out);
        roff(out, c->name);
        fputs("\n", out);
        roff(out, c->args);
        fputs("\n.PP\n", out);
        roff(out, c->help);
        fputs(".\n", out);
        if (*c->options) {
            fputs(".PP\n.EX\n", out);
            roff(out, c->options);
            fputs(".EE\n", out);
        }
        fputs(".PP\n.EX\n", out);
        roff(out, c->example);
        fputs(".EE\n", out);
    }
}

static void write_codes(FILE *out)
{
#define X(name, code, text) fprintf(out, ".TP\n.B %d\n%s\n", code, text);
    EXIT_CODES(X)
#undef X
}

/* `page` with the text between the marks replaced. */
static char *replaced(const char *page, const char *name, void (*write)(FILE *))
{
    char from[40], to[40], *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    const char *a, *b;

    snprintf(from, sizeof from, ".\\\" begin %s\n", name);
    snprintf(to, sizeof to, ".\\\" end %s\n", name);
    a = strstr(page, from);
    b = strstr(page, to);
    assert_true(a && b);
    a += strlen(from);
    fwrite(page, 1, (size_t)(a - page), out);
    write(out);
    fputs(b, out);
    fclose(out);
    return text;
}

static void manual_is_current(void **state)
{
    char *page = calloc(1, 1 << 18);
    FILE *f = fopen("docs/man/detctl.1", "r+");

    (void)state;
    assert_non_null(f);
    page[fread(page, 1, (1 << 18) - 1, f)] = '\0';
    char *half = replaced(page, "commands", write_commands), *whole = replaced(half, "codes", write_codes);
    if (getenv("DETD_GENERATE")) {
        rewind(f);
        assert_int_equal(fwrite(whole, 1, strlen(whole), f), strlen(whole));
        assert_int_equal(fflush(f) == 0 && ftruncate(fileno(f), (off_t)strlen(whole)) == 0, 1);
    } else {
        assert_string_equal(page, whole);
    }
    fclose(f);
    free(page);
    free(half);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(ids_are_whole_numbers_above_zero),
        cmocka_unit_test(examples_come_as_far_as_the_socket),
        cmocka_unit_test(manual_is_current),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
