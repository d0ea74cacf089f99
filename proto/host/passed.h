/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/passed.h - sockets whose other end may pass descriptors that
 * nobody asked for. The kernel closes such a descriptor in the thread that reads past it, or that closes the socket
 * last. That may take long: for a TCP socket with SO_LINGER as long as its maker has set. A thread that ends never
 * waits for it. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

/* Reads up to `room` bytes, which stay in the socket. Returns their number, 0 at the end, or a negative errno. The next
 * so many bytes come without descriptors, unless *ret_passed. */
ssize_t passed_look(int fd, void *bytes, size_t room, bool *ret_passed);
/* Closes a socket that no other descriptor has. */
void passed_close(int fd);
/* The same for a socket that another process has, too: it may not be shut down. */
void passed_drop(int fd);
