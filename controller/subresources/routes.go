package subresources

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodevirt/nodevirt/controller/aggregated"
)

// Group is the API's, and Versions are those in which all of it is served.
const Group = "subresources.kubevirt.io"

// Versions are the API's, the preferred one first.
var Versions = []string{"v1", "v1alpha3"}

// handler serves a call whose caller may have it. An error that it returns is replied, which only
// works as long as it has replied nothing.
type handler func(ctx context.Context, c *call) error

// route is one thing that can be asked for.
type route struct {
	// resource is of objects in a namespace; subresource may end in placeholders of a path.
	resource, subresource string
	method                string
	serve                 handler
}

// both is what can be done with an instance, asked for by its own name or by its virtual machine's.
func both(subresource, method string, serve handler) []route {
	return []route{
		{"virtualmachineinstances", subresource, method, serve},
		{"virtualmachines", subresource, method, serve},
	}
}

// table is all of the API.
func (s *Server) table() []route {
	all := []route{
		{"virtualmachines", "start", http.MethodPut, s.lifecycle.start},
		{"virtualmachines", "stop", http.MethodPut, s.lifecycle.stop},
		{"virtualmachines", "restart", http.MethodPut, s.lifecycle.restart},
		{"virtualmachines", "migrate", http.MethodPut, s.migrations.migrate},
		{"virtualmachines", "memorydump", http.MethodPut, s.dumps.request},
		{"virtualmachines", "removememorydump", http.MethodPut, s.dumps.remove},
		{"virtualmachines", "expand-spec", http.MethodGet, s.expander.expand},
		{"virtualmachines", "objectgraph", http.MethodGet, s.graphs.machine},
		{"virtualmachineinstances", "objectgraph", http.MethodGet, s.graphs.instance},
		{"virtualmachineinstances", "console", http.MethodGet, s.shares.counted(s.streams.console)},
		{"virtualmachineinstances", "vnc", http.MethodGet, s.shares.counted(s.streams.vnc)},
		{"virtualmachineinstances", "usbredir", http.MethodGet, s.shares.counted(s.streams.usbredir)},
		{"virtualmachineinstances", "vsock", http.MethodGet, s.shares.counted(s.streams.vsock)},
		{"virtualmachineinstances", "vnc/screenshot", http.MethodGet, s.controls.screenshot},
		{"virtualmachineinstances", "pause", http.MethodPut, s.controls.pause},
		{"virtualmachineinstances", "unpause", http.MethodPut, s.controls.unpause},
		{"virtualmachineinstances", "freeze", http.MethodPut, s.controls.freeze},
		{"virtualmachineinstances", "unfreeze", http.MethodPut, s.controls.unfreeze},
		{"virtualmachineinstances", "softreboot", http.MethodPut, s.controls.softReboot},
		{"virtualmachineinstances", "reset", http.MethodPut, s.controls.press("reset")},
		{"virtualmachineinstances", "guestosinfo", http.MethodGet, s.controls.agentReport("guest-info")},
		{"virtualmachineinstances", "userlist", http.MethodGet, s.controls.agentReport("users")},
		{"virtualmachineinstances", "filesystemlist", http.MethodGet, s.controls.agentReport("filesystems")},
	}
	all = append(all, both("addvolume", http.MethodPut, s.volumes.add)...)
	all = append(all, both("removevolume", http.MethodPut, s.volumes.remove)...)
	all = append(all, both("evacuate/cancel", http.MethodPut, s.migrations.cancelEvacuation)...)
	all = append(all, both("portforward/{port}", http.MethodGet, s.shares.counted(s.streams.portForward))...)
	all = append(all, both("portforward/{port}/{protocol}", http.MethodGet, s.shares.counted(s.streams.portForward))...)
	for subresource, sentence := range unsupported() {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			all = append(all, both(subresource, method, func(context.Context, *call) error { return missing(sentence) })...)
		}
	}
	return all
}

// Handler serves all paths below /apis/subresources.kubevirt.io/.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, version := range Versions {
		base := "/apis/" + Group + "/" + version
		for _, r := range s.table() {
			mux.HandleFunc(r.method+" "+base+"/namespaces/{namespace}/"+r.resource+"/{name}/"+r.subresource,
				s.guarded(version, r.resource, r.serve))
		}
		mux.HandleFunc("PUT "+base+"/namespaces/{namespace}/expand-vm-spec", s.guarded(version, "expand-vm-spec", s.expander.expandGiven))
		mux.HandleFunc("GET "+base+"/guestfs", s.open(s.guestfs))
		mux.HandleFunc("GET "+base+"/version", s.open(s.version))
		mux.HandleFunc("GET "+base+"/healthz", s.open(s.healthz))
		mux.HandleFunc("GET "+base, s.open(s.resources(version)))
	}
	mux.HandleFunc("/", s.open(func(_ context.Context, c *call) error {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, c.Method, schema.GroupResource{Group: Group}, "",
			"the server could not find the requested resource: "+c.URL.Path, 0, true)
	}))
	return mux
}

// open serves every caller that the API server has authenticated: discovery and health.
func (s *Server) open(serve handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, w: w}
		if err := serve(r.Context(), c); err != nil {
			aggregated.Refuse(w, err)
		}
	}
}

// guarded serves callers of the front proxy who may, and notes each in the log.
func (s *Server) guarded(version, resource string, serve handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{
			Request: r, w: w, version: version, resource: resource,
			namespace: r.PathValue("namespace"), name: r.PathValue("name"),
		}
		if c.name != "" {
			c.subresource = r.URL.Path[strings.Index(r.URL.Path, "/"+resource+"/"+c.name+"/")+len(resource)+len(c.name)+3:]
		}
		if err := s.serve(r.Context(), c, serve); err != nil {
			aggregated.Refuse(w, err)
		}
	}
}

func (s *Server) serve(ctx context.Context, c *call, serve handler) error {
	caller, err := s.Caller(c.Request)
	if err != nil {
		return apierrors.NewUnauthorized(err.Error())
	}
	c.caller = caller
	log := s.Log.With("user", caller.GetName(), "verb", verbs[c.Method], "namespace", c.namespace,
		"resource", c.resource, "name", c.name, "subresource", c.subresource)
	if err := s.authorizer.authorize(ctx, c); err != nil {
		log.Warn("subresource refused", "error", err)
		return err
	}
	log.Info("subresource called")
	if err := serve(ctx, c); err != nil {
		log.Info("subresource failed", "error", err)
		return err
	}
	return nil
}
