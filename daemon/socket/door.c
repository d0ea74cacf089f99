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
    static const struct {
        int most;
        const char *why;
    } limits[] = {
        [SAME_USER] = { DOOR_USER_MAX, "a user has at most %d connections, and all of yours are in use" },
        [NO_ADMINS] = { DOOR_MAX - DOOR_ADMINS, "all %d connections for users without admin rights are in use" },
        [ALL] = { DOOR_MAX, "all %d connections are in use" },
    };

    for (enum whom whom = newcomer->admin ? ALL : SAME_USER; whom <= ALL; whom++) {
        enum whom from = whom == ALL && !newcomer->admin ? NO_ADMINS : whom;
        int leaves;

        if (count(guests, n, whom, newcomer->uid) < limits[whom].most)
            continue;
        leaves = longest_idle(guests, n, from, newcomer->uid);
        return leaves != DOOR_ENTER ? leaves : err_set(err, ERR_STATE, limits[whom].why, limits[whom].most);
    }
    return DOOR_ENTER;
}

bool door_fits(const struct door_load *load, bool admin, size_t room)
{
    return load->all <= room && (admin || (load->guests <= room / 4 * 3 && load->user <= room / 4));
}
