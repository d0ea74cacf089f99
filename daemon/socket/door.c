#include "daemon/socket/door.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "proto/err.h"

enum whom { SAME_USER, NO_ADMINS, ALL };

static bool counts(const struct door_guest *g, enum whom whom, uid_t uid)
{
    return whom == ALL || (!g->admin && (whom == NO_ADMINS || g->uid == uid));
}

static int count(const struct door_guest *guests, int n, enum whom whom, uid_t uid)
{
    int found = 0;

    for (int i = 0; i < n; i++)
        found += counts(&guests[i], whom, uid);
    return found;
}

static int longest_idle(const struct door_guest *guests, int n, enum whom whom, uid_t uid)
{
    int found = DOOR_ENTER;

    for (int i = 0; i < n; i++)
        if (counts(&guests[i], whom, uid) && guests[i].idle_since &&
            (found == DOOR_ENTER || guests[i].idle_since < guests[found].idle_since))
            found = i;
    return found;
}

int door_ask(const struct door_guest *guests, int n, const struct door_guest *newcomer, struct err *err)
{
    const struct bound *b = &bounds[BOUND_CONNECTIONS];
    const int64_t limits[] = { [SAME_USER] = b->share, [NO_ADMINS] = b->most - b->reserve, [ALL] = b->most };
    const struct bound_load load = { count(guests, n, ALL, 0) + 1, count(guests, n, NO_ADMINS, 0) + 1,
                                     count(guests, n, SAME_USER, newcomer->uid) + 1 };

    for (enum whom whom = newcomer->admin ? ALL : SAME_USER; whom <= ALL; whom++) {
        enum whom from = whom == ALL && !newcomer->admin ? NO_ADMINS : whom;
        int leaves;

        if (count(guests, n, whom, newcomer->uid) < limits[whom])
            continue;
        leaves = longest_idle(guests, n, from, newcomer->uid);
        return leaves != DOOR_ENTER ? leaves : bound_check(BOUND_CONNECTIONS, &load, newcomer->admin, err);
    }
    return DOOR_ENTER;
}
