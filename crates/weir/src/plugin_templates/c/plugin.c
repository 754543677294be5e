/*
 * {{name}}: a plugin for Weir. It adds a field to every response and answers /{{name}} itself; put
 * what you need in its place.
 */
#include "weir_plugin.h"

/* The buffers: heads of usual size, the configuration and pieces of bodies, results of calls. */
WEIR_PLUGIN(16 * 1024, 64 * 1024, 1024)

#define PATH "/{{name}}"

/* What is answered: the configuration, or else this. */
static uint8_t greeting[1024] = "Hello from {{name}}\n";
static size_t greeting_len = sizeof("Hello from {{name}}\n") - 1;

/* The configuration is any text; here, the greeting itself. */
int32_t weir_configure(const uint8_t *text, size_t len);
int32_t WEIR_EXPORT(weir_configure)(const uint8_t *text, size_t len) {
    if (len >= sizeof greeting) {
        weir_log(WEIR_ERROR, WEIR_TEXT("configuration: at most 1023 bytes"));
        return 1;
    }
    if (len > 0) {
        __builtin_memcpy(greeting, text, len);
        greeting[len] = '\n';
        greeting_len = len + 1;
    }
    return 0;
}

/* The path of a target, without its query. */
static weir_slice_t path_of(weir_slice_t target) {
    uint32_t len = 0;
    while (len < target.len && target.at[len] != '?') {
        len++;
    }
    return (weir_slice_t){target.at, len};
}

WEIR_HOOK(weir_on_request)(const weir_frame_t *frame) {
    /* An edit list stays valid until the next call. */
    static uint8_t room[256];
    weir_edits_t edits = weir_edits(room, sizeof room);
    if (weir_is(path_of(frame->target), WEIR_TEXT(PATH))) {
        weir_answer(&edits, 200);
        weir_add(&edits, WEIR_TEXT("content-type"), WEIR_TEXT("text/plain; charset=utf-8"));
        weir_body(&edits, greeting, greeting_len);
    }
    return weir_done(&edits);
}

WEIR_HOOK(weir_on_response)(const weir_frame_t *frame) {
    static uint8_t room[256];
    weir_edits_t edits = weir_edits(room, sizeof room);
    (void)frame;
    weir_set(&edits, WEIR_TEXT("x-plugin"), WEIR_TEXT("{{name}}"));
    return weir_done(&edits);
}
