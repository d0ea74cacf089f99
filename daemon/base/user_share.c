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

bool user_share_take(struct user_share *s, enum bound_id id, double now)
{
    struct user_share_rate *r = &s->rates[id];

    r->taken -= (now - r->at) * (double)bounds[id].per_s;
    r->taken = r->taken > 0 ? r->taken : 0;
    r->at = now;
    if (r->taken + 1 > (double)bounds[id].share)
        return false;
    r->taken++;
    return true;
}

void user_shares_free(struct user_shares *s)
{
    for (int i = 0; i < s->count; i++)
        free(s->all[i]);
    free(s->all);
    *s = (struct user_shares){ 0 };
}
