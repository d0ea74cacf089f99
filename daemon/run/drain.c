#include "daemon/run/drain.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdint.h>
#include <stdio.h>

#include "daemon/launch/block.h"
#include "daemon/run/run.h"
#include "daemon/store/store.h"
#include "proto/err.h"

_Static_assert((int)RUN_DRAINED_MAX <= (int)BLOCK_NOTE_MAX, "a reason fits in a note");
static const char note_path[] = "drained";

static void stored(void *arg, int rc, int64_t value, const struct err *err)
{
    (void)arg;
    (void)value;
    (void)err;
    if (rc == 0)
        block_write(note_path, "");
}

bool drain_keep(struct runner *r, const char *reason)
{
    bool noted = block_write(note_path, reason);

    store_setting_later(r->store, "drained", reason, stored, NULL);
    return noted;
}

void drain_load(struct runner *r)
{
    char note[BLOCK_NOTE_MAX + 1];
    struct err err;

    block_make(note_path, &err);
    block_read(note_path, note);
    if (!note[0])
        return;
    snprintf(r->drained, sizeof r->drained, "%.*s", (int)RUN_DRAINED_MAX, note);
    drain_keep(r, r->drained);
}
