#include "daemon/base/user_share.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/grow.h"

struct user_share *user_shares_of(struct user_shares *s, uid_t uid)
{
    struct user_share *found;

    for (int i = 0; i < s->count; i++)
        if (s->all[i]->uid == uid)
            return s->all[i];
    found = GROW(s->all, s->cap, s->count + 1) ? calloc(1, sizeof *found) : NULL;
    if (!found)
        return NULL;
    found->uid = uid;
    s->all[s->count++] = found;
    return found;
}

void user_shares_free(struct user_shares *s)
{
    for (int i = 0; i < s->count; i++)
        free(s->all[i]);
    free(s->all);
    *s = (struct user_shares){ 0 };
}
