package criwalk

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nodeCases are the RPCs that concern neither a container nor a pod nor an image, or all of them.
func nodeCases() map[string]proto.Message {
	return map[string]proto.Message{
		"Version":                 &runtimeapi.VersionRequest{},
		"Status":                  &runtimeapi.StatusRequest{Verbose: true},
		"RuntimeConfig":           &runtimeapi.RuntimeConfigRequest{},
		"UpdateRuntimeConfig":     &runtimeapi.UpdateRuntimeConfigRequest{},
		"ImageFsInfo":             &runtimeapi.ImageFsInfoRequest{},
		"ListMetricDescriptors":   &runtimeapi.ListMetricDescriptorsRequest{},
		"ListPodSandboxMetrics":   &runtimeapi.ListPodSandboxMetricsRequest{},
		"StreamPodSandboxMetrics": &runtimeapi.StreamPodSandboxMetricsRequest{},
		"RestorePod":              &runtimeapi.RestorePodRequest{},
	}
}

// TestEachMethod fails for an RPC of CRI that no case asks.
func TestEachMethod(t *testing.T) {
	asked := []string{"GetContainerEvents"} // by TestEvents
	for _, names := range []func(func(string) bool){
		maps.Keys(containerCases()), maps.Keys(sandboxCases()), maps.Keys(imageCases()), maps.Keys(nodeCases()),
	} {
		asked = slices.AppendSeq(asked, names)
	}
	all := methods(t)
	for name := range all {
		if !slices.Contains(asked, name) {
			t.Errorf("no case asks %s: add one, with what a VM is to answer", name)
		}
	}
	for _, name := range asked {
		if all[name] == nil {
			t.Errorf("a case asks %s, which CRI does not have", name)
		}
	}
}

// TestNode compares what the shim says of the node with what containerd says.
func TestNode(t *testing.T) {
	t.Parallel()
	all := methods(t)
	mask := (&subject{pod: &pod{config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{}}}}).mask
	for name, request := range nodeCases() {
		want, wantErr := callBy(t.Context(), suite.containerd, all[name], request)
		got, err := call(t.Context(), all[name], request)
		if !sameError(err, wantErr) {
			t.Errorf("%s: the shim says %v, containerd %v", name, err, wantErr)
			continue
		}
		if err != nil || isMetrics(all[name]) {
			continue // other tests' pods come and go; TestMetrics looks into these
		}
		for _, line := range shape(want, mask) {
			if !slices.Contains(shape(got, mask), line) && name != "Status" { // which has one handler more
				t.Errorf("%s: the shim does not say %s", name, line)
			}
		}
	}
}

func isMetrics(m protoreflect.MethodDescriptor) bool {
	return m.Output().Name() == "ListPodSandboxMetricsResponse" || m.Output().Name() == "StreamPodSandboxMetricsResponse"
}
