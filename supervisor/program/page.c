#include "supervisor/program/page.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdatomic.h>
#include <string.h>

#include "proto/clean.h"

static uint64_t get(_Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

void page_read(struct progress *page, struct silence_page *ret)
{
    uint64_t name[PROGRESS_NAME_WORDS + 1] = { 0 };
    char raw[sizeof name];

    *ret = (struct silence_page){ 0 };
    if (atomic_load_explicit(&page->magic, memory_order_acquire) != PROGRESS_MAGIC ||
        atomic_load_explicit(&page->version, memory_order_relaxed) < PROGRESS_VERSION_PROGRAM)
        return;
    ret->changes = atomic_load_explicit(&page->changes, memory_order_acquire);
    ret->step = get(&page->step) & INT64_MAX;
    ret->deadline_ms = get(&page->phase_deadline_ms);
    for (int i = 0; i < PROGRESS_NAME_WORDS; i++)
        name[i] = get(&page->phase_name[i]);
    memcpy(raw, name, sizeof raw);
    for (char *p = raw; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    clean_copy(ret->phase, sizeof ret->phase, raw);
}
