/* SPDX-License-Identifier: Apache-2.0 */ /* launch/account.h - the submitter's account, as the node knows it now. For
 * the child, which is still root and may wait for a network's answer. */
#pragma once
#include <pwd.h>

#include "proto/launch.h"

struct err;

/* ERR_DENIED: the number belongs to an account of another name than the ticket's, or the account is expired. An account
 * without an entry in the shadow file is not expired; a locked password does not matter. */
int account_check(const struct passwd *user, const struct launch_ticket *t, struct err *err);
/* Sets the login uid, by which the kernel's audit names the user, where the node has one and nobody has set it. */
void account_log_in(uid_t uid);
