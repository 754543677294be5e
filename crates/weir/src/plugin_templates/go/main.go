// Command {{name}} is a Weir plugin on proxy-wasm. It adds a field to every response and answers
// /{{name}} itself; put what you need in its place.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

// The server runs the module's initialization, never main.
func init() {
	proxywasm.SetPluginContext(func(uint32) types.PluginContext { return &plugin{} })
}

// plugin lives as long as the module's instance, of which there are several.
type plugin struct {
	types.DefaultPluginContext
	greeting string
}

// OnPluginStart reads the configuration: here, the greeting itself.
func (p *plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	p.greeting = "Hello from {{name}}"
	if size == 0 {
		return types.OnPluginStartStatusOK
	}
	text, err := proxywasm.GetPluginConfiguration()
	if err != nil {
		proxywasm.LogErrorf("configuration: %v", err)
		return types.OnPluginStartStatusFailed
	}
	p.greeting = string(text)
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext {
	return &exchange{plugin: p}
}

// exchange is one request and its response.
type exchange struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (e *exchange) OnHttpRequestHeaders(int, bool) types.Action {
	path, err := proxywasm.GetHttpRequestHeader(":path")
	if err != nil || path != "/{{name}}" {
		return types.ActionContinue
	}
	fields := [][2]string{{"content-type", "text/plain; charset=utf-8"}}
	body := []byte(e.plugin.greeting + "\n")
	if err := proxywasm.SendHttpResponse(200, fields, body, -1); err != nil {
		proxywasm.LogErrorf("answering: %v", err)
		return types.ActionContinue
	}
	return types.ActionPause
}

func (e *exchange) OnHttpResponseHeaders(int, bool) types.Action {
	if err := proxywasm.ReplaceHttpResponseHeader("x-plugin", "{{name}}"); err != nil {
		proxywasm.LogErrorf("setting x-plugin: %v", err)
	}
	return types.ActionContinue
}
