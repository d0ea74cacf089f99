/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/notify.h - systemd's two small protocols, without its library:
 * readiness messages and inherited sockets. */
#pragma once

/* Sends "READY=1" or the like to NOTIFY_SOCKET; does nothing without that variable. */
void notify_systemd(const char *state);
/* The socket that systemd opened for this process, or -1. *ret_admin: the one at the path `admin`, or -1. */
int notify_listen_fd(const char *admin, int *ret_admin);
