package cri

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// passed are the methods that name, or list, containers or sandboxes and are passed on all the same.
var passed = map[string]string{
	"PullImage":                 "the pod is named for credentials only; images are containerd's",
	"UpdatePodSandboxResources": "it concerns the sandbox, which is containerd's, and not what runs in it",
}

// TestRoutes walks all of CRI, so that a method which a new version brings can't slip by: one whose
// request or reply names containers or sandboxes has a route, or a reason.
func TestRoutes(t *testing.T) {
	routed, reasons := newFront(nil, noVMs{}).routes, map[string]bool{}
	services := new(runtimeapi.VersionRequest).ProtoReflect().Descriptor().ParentFile().Services()
	for i := range services.Len() {
		s := services.Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			full := fmt.Sprintf("/%s/%s", s.FullName(), m.Name())
			_, ok := routed[full]
			delete(routed, full)
			name := string(m.Name())
			reason := passed[name] != ""
			reasons[name] = reason
			names := names(m.Input(), map[protoreflect.FullName]bool{}) || names(m.Output(), map[protoreflect.FullName]bool{})
			switch {
			case ok && reason:
				t.Errorf("%s has a route, and a reason to have none", name)
			case names && !ok && !reason:
				t.Errorf("%s names containers or sandboxes and has neither a route nor a reason to be passed on", name)
			case reason && !names:
				t.Errorf("%s is passed on anyway: it needs no reason", name)
			}
		}
	}
	for name := range routed {
		t.Errorf("there is no method %s", name)
	}
	for name := range passed {
		if !reasons[name] {
			t.Errorf("there is no method %s, which has a reason to be passed on", name)
		}
	}
}

// names reports whether a message, or one in it, names a container or a sandbox.
func names(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[m.FullName()] {
		return false
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := string(f.Name())
		if strings.HasSuffix(name, "container_id") || strings.HasSuffix(name, "sandbox_id") {
			return true
		}
		if f.Message() == nil {
			continue
		}
		switch f.Message().Name() {
		case "PodSandbox", "PodSandboxStatus", "PodSandboxStats", "PodSandboxConfig", "Container", "ContainerStatus", "ContainerStats":
			return true
		}
		if names(f.Message(), seen) {
			return true
		}
	}
	return false
}
