/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/sha256.h - SHA-256 (FIPS 180-4), and an authentication code with
 * a key (HMAC, RFC 2104). No library but libc. */
#pragma once
#include <stddef.h>

enum { SHA256_BYTES = 32 };

void sha256(const void *data, size_t size, unsigned char ret[SHA256_BYTES]);
/* Writes the code of the data under the key. Without the key, a code cannot be made, nor the data changed unnoticed. */
void sha256_seal(const unsigned char key[SHA256_BYTES], const void *data, size_t size, unsigned char ret[SHA256_BYTES]);
