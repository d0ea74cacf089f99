#include "daemon/base/bounds.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "proto/err.h"

#define X(ident, most, share, reserve, per_s, what) [BOUND_##ident] = { most, share, reserve, per_s, what },
const struct bound bounds[BOUND_COUNT] = { BOUNDS(X) };
#undef X

int bound_check_share(enum bound_id id, int64_t share, const struct bound_load *load, bool admin, struct err *err)
{
    const struct bound *b = &bounds[id];

    if (!admin && load->user > share)
        return err_set(err, ERR_STATE, "a user has at most %lld %s, and your share is used up", (long long)share, b->what);
    if (!admin && b->most && load->guests > b->most - b->reserve)
        return err_set(err, ERR_STATE, "users without admin rights have at most %lld %s, and all are used up",
                       (long long)(b->most - b->reserve), b->what);
    if (b->most && load->all > b->most)
        return err_set(err, ERR_STATE, "this daemon has at most %lld %s, and all are used up", (long long)b->most, b->what);
    return 0;
}

int bound_check(enum bound_id id, const struct bound_load *load, bool admin, struct err *err)
{
    return bound_check_share(id, bounds[id].share, load, admin, err);
}
