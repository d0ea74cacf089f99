/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/notify.h - systemd's two small protocols, without its library: readiness messages
 * and inherited sockets. */
#pragma once

/* Sends "READY=1" or the like to NOTIFY_SOCKET; does nothing without that variable. */
void notify_systemd(const char *state);
/* The first socket that systemd opened for this process (3), or -1. */
int notify_listen_fd(void);
