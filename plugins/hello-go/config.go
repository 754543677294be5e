package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// config is what the plugin is configured with.
type config struct {
	Header   string `json:"header"`
	Greeting string `json:"greeting"`
}

// parseConfig reads and checks the configuration; none at all means the defaults.
func parseConfig(text []byte) (config, error) {
	c := config{Header: "x-hello", Greeting: "Hello from Go"}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return c, errors.New("something follows the configuration")
	}
	if !isToken(c.Header) {
		return c, fmt.Errorf("“%s” is no name of a header field", c.Header)
	}
	if !isText(c.Greeting) {
		return c, fmt.Errorf("“greeting” holds a control character: %q", c.Greeting)
	}
	return c, nil
}

// isToken says whether s can name a header field (RFC 9110, 5.6.2).
func isToken(s string) bool {
	isBad := func(r rune) bool {
		isWord := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !isWord && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	return s != "" && !strings.ContainsFunc(s, isBad)
}

// isText says whether s can be a header field's value (RFC 9110, 5.5).
func isText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
