#include "launch/account.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <shadow.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/err.h"

enum { DAY_S = 24 * 3600 };

int account_check(const struct passwd *user, const struct launch_ticket *t, struct err *err)
{
    const struct spwd *shadow;

    if (strncmp(user->pw_name, t->user, LAUNCH_USER) != 0)
        return err_set(err, ERR_DENIED, "user %u is %s now, and the job belongs to %s", t->uid, user->pw_name, t->user);
    shadow = getspnam(user->pw_name);
    if (shadow && shadow->sp_expire >= 0 && time(NULL) / DAY_S >= shadow->sp_expire)
        return err_set(err, ERR_DENIED, "the account of %s is expired", user->pw_name);
    return 0;
}

void account_log_in(uid_t uid)
{
    int fd = open("/proc/self/loginuid", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (dprintf(fd, "%u", uid) < 0)
        errno = 0; /* no error: it is set already, since detd-launch was started from a login */
    close(fd);
}
