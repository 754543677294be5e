/*
 * A plugin on proxy-wasm that closes parts of a site for maintenance: answers 503 with Retry-After
 * for the paths of its configuration, unless the client has the bypass cookie. Its configuration is
 * lines of text:
 *
 *     path /shop/
 *     bypass key=3f9c
 *     retry-after 600
 *     message We are back soon.
 *
 * No C library: memory is a fixed table and one arena, which every callback empties when it begins.
 */
#include "proxy_wasm.h"

enum {
    PATHS_MAX = 32,
    CONFIGURATION_BYTES_MAX = 8 * 1024,
    ARENA_BYTES = 64 * 1024,
    FIELDS_BYTES = 256,
};

typedef struct {
    const uint8_t *at;
    size_t size;
} text_t;

#define TEXT(literal) ((text_t){(const uint8_t *)(literal), sizeof(literal) - 1})

static struct {
    uint8_t bytes[CONFIGURATION_BYTES_MAX];
    text_t paths[PATHS_MAX];
    size_t path_count;
    text_t bypass;
    text_t retry_after;
    text_t message;
    uint32_t refused_metric;
} config;

static struct {
    _Alignas(8) uint8_t bytes[ARENA_BYTES];
    size_t used;
} arena;

void proxy_abi_version_0_2_1(void) {}

/* The host asks for memory to put a value into; nothing is kept longer than one callback. */
void *proxy_on_memory_allocate(size_t size) {
    size_t start = (arena.used + 7) & ~(size_t)7;
    if (size > ARENA_BYTES - start) {
        return 0;
    }
    arena.used = start + size;
    return arena.bytes + start;
}

static bool is_equal(text_t a, text_t b) {
    if (a.size != b.size) {
        return false;
    }
    for (size_t i = 0; i < a.size; i++) {
        if (a.at[i] != b.at[i]) {
            return false;
        }
    }
    return true;
}

static bool starts_with(text_t text, text_t prefix) {
    return text.size >= prefix.size && is_equal((text_t){text.at, prefix.size}, prefix);
}

static text_t trimmed(text_t text) {
    while (text.size > 0 && text.at[0] <= ' ') {
        text.at++, text.size--;
    }
    while (text.size > 0 && text.at[text.size - 1] <= ' ') {
        text.size--;
    }
    return text;
}

/* Takes what comes before the first `separator` off `rest`, and the separator. */
static text_t cut(text_t *rest, uint8_t separator) {
    size_t end = 0;
    while (end < rest->size && rest->at[end] != separator) {
        end++;
    }
    text_t first = {rest->at, end};
    size_t skip = end < rest->size ? end + 1 : end;
    rest->at += skip;
    rest->size -= skip;
    return first;
}

static bool is_number(text_t text) {
    for (size_t i = 0; i < text.size; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') {
            return false;
        }
    }
    return text.size > 0 && text.size < 10;
}

static bool fail(text_t what) {
    proxy_log(PROXY_LOG_ERROR, (const char *)what.at, what.size);
    return false;
}

static bool read_line(text_t line) {
    text_t name = cut(&line, ' ');
    text_t value = trimmed(line);
    if (is_equal(name, TEXT("path"))) {
        if (config.path_count == PATHS_MAX) {
            return fail(TEXT("configuration: at most 32 paths"));
        }
        if (value.size == 0 || value.at[0] != '/') {
            return fail(TEXT("configuration: a path must begin with “/”"));
        }
        config.paths[config.path_count++] = value;
    } else if (is_equal(name, TEXT("bypass"))) {
        config.bypass = value;
    } else if (is_equal(name, TEXT("retry-after"))) {
        if (!is_number(value)) {
            return fail(TEXT("configuration: “retry-after” must be a number of seconds"));
        }
        config.retry_after = value;
    } else if (is_equal(name, TEXT("message"))) {
        config.message = value;
    } else {
        return fail(TEXT("configuration: a line must begin with path, bypass, retry-after or message"));
    }
    return true;
}

bool proxy_on_configure(uint32_t plugin_context_id, size_t size) {
    (void)plugin_context_id;
    arena.used = 0;
    config.path_count = 0;
    config.bypass = (text_t){0};
    config.retry_after = TEXT("300");
    config.message = TEXT("Closed for maintenance; please come back later.");
    proxy_define_metric(PROXY_COUNTER, "maintenance.refused", 19, &config.refused_metric);
    uint8_t *bytes;
    if (size > CONFIGURATION_BYTES_MAX) {
        return fail(TEXT("configuration: at most 8 KiB"));
    }
    if (size > 0) {
        if (proxy_get_buffer_bytes(PROXY_PLUGIN_CONFIGURATION, 0, size, &bytes, &size) != PROXY_OK) {
            return fail(TEXT("the configuration cannot be read"));
        }
        __builtin_memcpy(config.bytes, bytes, size);
    }
    text_t rest = {config.bytes, size};
    while (rest.size > 0) {
        text_t line = trimmed(cut(&rest, '\n'));
        if (line.size > 0 && line.at[0] != '#' && !read_line(line)) {
            return false;
        }
    }
    if (config.path_count == 0) {
        return fail(TEXT("configuration: needs at least one path"));
    }
    return true;
}

/* False also where the host has no such field. */
static bool field(text_t name, text_t *value) {
    uint8_t *at;
    size_t size;
    proxy_status_t status = proxy_get_header_map_value(
        PROXY_HTTP_REQUEST_HEADERS, (const char *)name.at, name.size, &at, &size);
    *value = (text_t){at, size};
    return status == PROXY_OK;
}

/* A path that ends with “/” stands for all below it; another for itself alone. */
static bool is_closed(text_t target) {
    text_t path = cut(&target, '?');
    for (size_t i = 0; i < config.path_count; i++) {
        text_t closed = config.paths[i];
        bool has_all_below = closed.at[closed.size - 1] == '/';
        if (has_all_below ? starts_with(path, closed) : is_equal(path, closed)) {
            return true;
        }
    }
    return false;
}

static bool may_pass(void) {
    text_t cookies;
    if (config.bypass.size == 0 || !field(TEXT("cookie"), &cookies)) {
        return false;
    }
    while (cookies.size > 0) {
        if (is_equal(trimmed(cut(&cookies, ';')), config.bypass)) {
            return true;
        }
    }
    return false;
}

/* Fields serialized as the host wants them: a count, lengths, then each text and a zero byte. */
static size_t serialize(uint8_t *out, const text_t (*fields)[2], uint32_t count) {
    size_t at = 0;
    __builtin_memcpy(out, &count, 4), at += 4;
    for (uint32_t i = 0; i < 2 * count; i++) {
        uint32_t size = fields[i / 2][i % 2].size;
        __builtin_memcpy(out + at, &size, 4), at += 4;
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        text_t text = fields[i / 2][i % 2];
        __builtin_memcpy(out + at, text.at, text.size), at += text.size;
        out[at++] = 0;
    }
    return at;
}

proxy_action_t proxy_on_request_headers(uint32_t context_id, size_t count, bool end_of_stream) {
    (void)context_id, (void)count, (void)end_of_stream;
    arena.used = 0;
    text_t target;
    if (!field(TEXT(":path"), &target) || !is_closed(target) || may_pass()) {
        return PROXY_CONTINUE;
    }
    const text_t fields[][2] = {
        {TEXT("retry-after"), config.retry_after},
        {TEXT("content-type"), TEXT("text/plain; charset=utf-8")},
        {TEXT("cache-control"), TEXT("no-store")},
    };
    /* The longest of these make 130 bytes: retry-after has at most nine digits. */
    uint8_t serialized[FIELDS_BYTES];
    size_t size = serialize(serialized, fields, sizeof fields / sizeof fields[0]);
    proxy_increment_metric(config.refused_metric, 1);
    proxy_send_local_response(
        503, "maintenance", 11, config.message.at, config.message.size, serialized, size,
        UINT32_MAX);
    return PROXY_PAUSE;
}
