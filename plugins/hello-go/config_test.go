package main

import "testing"

func TestParseConfig(t *testing.T) {
	check := func(text, header, greeting string) {
		t.Helper()
		c, err := parseConfig([]byte(text))
		if header == "" {
			if err == nil {
				t.Errorf("%q is accepted", text)
			}
			return
		}
		if err != nil || c.Header != header || c.Greeting != greeting {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	check("", "x-hello", "Hello from Go")
	check(" \n", "x-hello", "Hello from Go")
	check(`{"header": "X-A", "greeting": "a: b"}`, "X-A", "a: b")
	check(`{"greeting": "Grüße"}`, "x-hello", "Grüße")
	check(`{`, "", "")
	check(`{} {}`, "", "")
	check(`{"header": "a b"}`, "", "")
	check(`{"header": ""}`, "", "")
	check(`{"greeting": "a\u0001b"}`, "", "")
	check(`{"colour": "red"}`, "", "")
	check(`["x"]`, "", "")
}
