// Command hello-go is a plugin: it adds a response header with a greeting, counts the requests it
// has seen and logs the first one.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

// A proxy runs the module's initialization, never main.
func init() {
	proxywasm.SetPluginContext(func(uint32) types.PluginContext { return &plugin{} })
}

// plugin is what lives as long as the module's instance.
type plugin struct {
	types.DefaultPluginContext
	config   config
	requests proxywasm.MetricCounter
	seen     bool
}

func (p *plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	var text []byte
	if size > 0 {
		var err error
		if text, err = proxywasm.GetPluginConfiguration(); err != nil {
			proxywasm.LogErrorf("configuration: %v", err)
			return types.OnPluginStartStatusFailed
		}
	}
	config, err := parseConfig(text)
	if err != nil {
		proxywasm.LogErrorf("configuration: %v", err)
		return types.OnPluginStartStatusFailed
	}
	p.config = config
	p.requests = proxywasm.DefineCounterMetric("hello_go.requests")
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
	e.plugin.requests.Increment(1)
	if !e.plugin.seen {
		e.plugin.seen = true
		proxywasm.LogInfo("hello-go has seen its first request")
	}
	return types.ActionContinue
}

func (e *exchange) OnHttpResponseHeaders(int, bool) types.Action {
	config := e.plugin.config
	if err := proxywasm.AddHttpResponseHeader(config.Header, config.Greeting); err != nil {
		proxywasm.LogErrorf("adding %s: %v", config.Header, err)
	}
	return types.ActionContinue
}
