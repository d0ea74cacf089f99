/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/cuda/test_search.c - uses: proto plans
 * Where shared libraries are searched for, which of several is taken, and the error when no library is suitable. */
#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/search.h"
#include "proto/err.h"
#include "tests/stand/harness.h"

static char root[TEMP_MAX];
static bool compiler;

static long ask(void *symbol)
{
    return ((int (*)(void))symbol)();
}

static const struct library wanted = { "Testlib", { "libdetdtest.so.7", "libdetdtest.so.6" }, "detd_test_version", ask, 20300 };

static void shell(const char *fmt, ...)
{
    char command[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    assert_int_equal(system(command), 0);
}

/* root/folder/libdetdtest.so.N of that version. */
static void place(const char *folder, int n, int version)
{
    shell("mkdir -p '%s/%s' && echo 'int detd_test_version(void) { return %d; }' | cc -shared -fPIC -x c -o '%s/%s/libdetdtest.so.%d' -",
          root, folder, version, root, folder, n);
}

static void set(const char *variable, const char *folder)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", root, folder);
    setenv(variable, path, 1);
}

/* The library that is found lies in root/folder and has that version. */
static void found_in(const char *folder, long version)
{
    struct library_found found;
    char want[512];
    struct err err;

    if (library_find(&wanted, &found, &err) < 0)
        fail_msg("%s", err.msg);
    snprintf(want, sizeof want, "%s/%s/libdetdtest.so.", root, folder);
    if (strncmp(found.path, want, strlen(want)) != 0)
        fail_msg("found %s, not in %s", found.path, folder);
    assert_int_equal(found.version, version);
    dlclose(found.handle);
}

static int clean(void **state)
{
    static const char *const variables[] = { "DETD_CUDA_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME" };

    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    shell("rm -rf '%s'/*", root);
    return 0;
}

static void none(void **state)
{
    struct library_found found;
    struct err err;

    (void)state;
    assert_int_equal(library_find(&wanted, &found, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "Testlib 2.3.0 or newer is needed and was not found (libdetdtest.so.7)"));
    assert_non_null(strstr(err.msg, "DETD_CUDA_PATH"));
    assert_non_null(strstr(err.msg, "LD_LIBRARY_PATH is not passed on to ranks"));
}

static void own_folders_first(void **state)
{
    char list[1100];

    (void)state;
    if (!compiler)
        SKIP("no C compiler to make libraries with");
    place("toolkit/lib64", 7, 20400);
    place("mine", 6, 20300);
    place("wheels/nvidia/testlib/lib", 7, 20500);
    set("CUDA_HOME", "toolkit");
    found_in("toolkit/lib64", 20400);
    snprintf(list, sizeof list, "/nowhere::%s/mine", root);
    setenv("DETD_CUDA_PATH", list, 1);
    found_in("mine", 20300);
    set("DETD_CUDA_PATH", "wheels/nvidia");
    found_in("wheels/nvidia/testlib/lib", 20500);
}

static void wheels_of_both_layouts(void **state)
{
    (void)state;
    if (!compiler)
        SKIP("no C compiler to make libraries with");
    place("venv [1]*/lib/python3.9/site-packages/nvidia/cu13/lib", 7, 20300);
    set("VIRTUAL_ENV", "venv [1]*");
    found_in("venv [1]*/lib/python3.9/site-packages/nvidia/cu13/lib", 20300);
    place("home/.local/lib/python3.11/site-packages/nvidia/testlib/lib", 7, 30000);
    set("HOME", "home");
    unsetenv("VIRTUAL_ENV");
    found_in("home/.local/lib/python3.11/site-packages/nvidia/testlib/lib", 30000);
}

enum { FOUND, NOT_FOUND, NO_NAMESPACE };

/* Runs the search in a child with root/folder as /opt. Returns whether the library is found there. */
static int found_in_opt(const char *folder)
{
    char path[512];
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct library_found found = { 0 };
        struct err err;

        snprintf(path, sizeof path, "%s/%s", root, folder);
        if ((unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) ||
            mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount(path, "/opt", NULL, MS_BIND, NULL) < 0)
            _exit(NO_NAMESPACE);
        _exit(library_find(&wanted, &found, &err) == 0 && strncmp(found.path, "/opt/", 5) == 0 ? FOUND : NOT_FOUND);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void environments_below_opt(void **state)
{
    static const char *const homes[] = { "torch", ".venv", "torch/.venv", "torch/venv", "torch/env", "conda/envs/train" };
    char folder[64], library[160];

    (void)state;
    if (!compiler)
        SKIP("no C compiler to make libraries with");
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
        snprintf(folder, sizeof folder, "opt-%zu", i);
        snprintf(library, sizeof library, "%s/%s/lib/python3.12/site-packages/nvidia/%s/lib", folder, homes[i], i % 2 ? "cu13" : "testlib");
        place(library, 7, 20300);
        switch (found_in_opt(folder)) {
        case NO_NAMESPACE:
            SKIP("no namespace of mounts for a made-up /opt");
        case NOT_FOUND:
            fail_msg("not found: /opt/%s", homes[i]);
        }
    }
    place("opt-data/torch/pictures/lib/python3.12/site-packages/nvidia/cu13/lib", 7, 20300);
    assert_int_equal(found_in_opt("opt-data"), NOT_FOUND);
}

static void an_old_one_is_passed_over(void **state)
{
    struct library_found found;
    struct err err;

    (void)state;
    if (!compiler)
        SKIP("no C compiler to make libraries with");
    place("toolkit/lib64", 7, 20299);
    set("CUDA_HOME", "toolkit");
    assert_int_equal(library_find(&wanted, &found, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "Testlib 2.3.0 or newer is needed; found: 2.2.99 in "));
    place("toolkit/lib64", 6, 20300);
    found_in("toolkit/lib64", 20300);
}

static void a_file_that_is_none(void **state)
{
    struct library_found found;
    struct err err;

    (void)state;
    shell("mkdir -p '%s/x' && echo text > '%s/x/libdetdtest.so.7'", root, root);
    set("DETD_CUDA_PATH", "x");
    assert_int_equal(library_find(&wanted, &found, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "a file that cannot be loaded in "));
    if (!compiler)
        SKIP("no C compiler to make libraries with");
    shell("echo 'int other;' | cc -shared -fPIC -x c -o '%s/x/libdetdtest.so.7' -", root);
    assert_int_equal(library_find(&wanted, &found, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "a file without a version in "));
}

static void versions_as_text(void **state)
{
    char text[64];

    (void)state;
    library_version_text(91902, text, sizeof text);
    assert_string_equal(text, "9.19.2");
    library_version_text(8907, text, sizeof text);
    assert_string_equal(text, "8.9.7");
}

static int make_root(void **state)
{
    (void)state;
    compiler = system("command -v cc >/dev/null") == 0;
    return mkdtemp(temp_path(root, sizeof root, "detd-search-XXXXXX")) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    shell("rm -rf '%s'", root);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(none, clean),
        cmocka_unit_test_setup(own_folders_first, clean),
        cmocka_unit_test_setup(wheels_of_both_layouts, clean),
        cmocka_unit_test_setup(environments_below_opt, clean),
        cmocka_unit_test_setup(an_old_one_is_passed_over, clean),
        cmocka_unit_test_setup(a_file_that_is_none, clean),
        cmocka_unit_test(versions_as_text),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
