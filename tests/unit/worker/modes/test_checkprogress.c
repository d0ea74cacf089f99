/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/modes/test_checkprogress.c
 * uses: proto worker worker/modes worker/predict worker/backend trainer cpu
 * A long check reports its progress, and a short one prints nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/stand/harness.h"
#include "worker/modes/checkprogress.h"
#include "worker/data/read/check.h"

/* Replaces stderr by a pipe and returns the pipe's other end. The caller puts *ret_old back. */
static FILE *listen_to_stderr(int *ret_old)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    *ret_old = dup(STDERR_FILENO);
    assert_true(*ret_old >= 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    return fdopen(ends[0], "r");
}

static void put_back(int old)
{
    assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
    close(old);
}

static void it_tells_what_is_looked_at(void **state)
{
    struct checkprogress *p;
    struct check_progress *count;
    char first[200] = "", second[200] = "";
    int old;
    FILE *said = listen_to_stderr(&old);

    (void)state;
    p = checkprogress_start(" (a hint)");
    assert_non_null(p);
    count = checkprogress_phase(p, "train");
    assert_int_equal(atomic_load(&count->of), 0);
    atomic_store(&count->of, 7);
    atomic_store(&count->done, 3);
    assert_non_null(fgets(first, sizeof first, said)); /* waits for that line, however long it takes */
    checkprogress_phase(p, "val");
    assert_non_null(fgets(second, sizeof second, said));
    checkprogress_stop(p);
    put_back(old);
    fclose(said);
    assert_string_equal(first, "checking train: 3 of 7 images (a hint)\n");
    assert_string_equal(second, "checking val\n");
}

static void nobody_asks(void **state)
{
    (void)state;
    assert_null(checkprogress_phase(NULL, "train"));
    checkprogress_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(it_tells_what_is_looked_at), cmocka_unit_test(nobody_asks) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
