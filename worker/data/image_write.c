#include "worker/data/image.h"

#include <errno.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"

/* The chunk "Software: detd", with its 0xc1, 0x7b, 0xd7, 0xa7; it follows the signature and IHDR. */
static const uint8_t own[] = { 0,   0,   0,   13, 't', 'E', 'X', 't', 'S',  'o',  'f',  't', 'w',
                               'a', 'r', 'e', 0,  'd', 'e', 't', 'd', 0xc1, 0x7b, 0xd7, 0xa7 };
enum { OWN_AT = 8 + 25 };

/* size bytes, with `own` put in. */
static int publish(const char *path, const uint8_t *bytes, size_t size, struct err *err)
{
    struct file_out *out;
    int rc = file_out_open_new(path, &out, err);

    if (rc < 0)
        return rc;
    file_out_write(out, bytes, OWN_AT, err);
    file_out_write(out, own, sizeof own, err);
    file_out_write(out, bytes + OWN_AT, size - OWN_AT, err);
    return file_out_commit(out, err);
}

int image_write_png(const char *path, const uint8_t *rgb, int w, int h, struct err *err)
{
    png_image image = { .version = PNG_IMAGE_VERSION, .width = (png_uint_32)w, .height = (png_uint_32)h, .format = PNG_FORMAT_RGB };
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    uint8_t *bytes = malloc(size);
    int rc;

    if (!bytes)
        return err_set(err, -ENOMEM, "%s: no memory for %zu bytes", path, (size_t)size);
    if (png_image_write_to_memory(&image, bytes, &size, 0, rgb, 0, NULL))
        rc = publish(path, bytes, size, err);
    else
        rc = err_set(err, ERR_STATE, "%s: cannot encode: %s", path, image.message);
    free(bytes);
    return rc;
}

bool image_is_own_png(const char *path)
{
    struct file_map m;
    struct err ignored;
    bool is;

    if (file_map_open(path, IMAGE_MAX_BYTES, &m, &ignored) < 0)
        return false;
    is = m.size >= OWN_AT + sizeof own && memcmp(m.data + OWN_AT, own, sizeof own) == 0;
    file_map_close(&m);
    return is;
}
