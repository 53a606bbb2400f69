package docs_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestExamples translates crictl's examples to a VM's spec. Unknown fields, which crictl ignores, are
// errors here.
func TestExamples(t *testing.T) {
	var pod runtimeapi.PodSandboxConfig
	var container runtimeapi.ContainerConfig
	for path, into := range map[string]proto.Message{
		"../examples/pod.json":       &pod,
		"../examples/container.json": &container,
	} {
		text, err := os.ReadFile(path)
		if err == nil {
			err = protojson.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if err := vmspec.ValidateSandbox(&pod); err != nil {
		t.Error(err)
	}
	u, err := vmspec.FromCRI(&pod, &container)
	if err != nil {
		t.Fatal(err)
	}
	if spec := u.Resolve(vmspec.Facts{}); spec.Seed == nil || spec.Seed.UserData == "" {
		t.Error("the example's user data does not reach the guest")
	}
}

// TestManifests checks the annotations of the example pods for Kubernetes.
func TestManifests(t *testing.T) {
	paths, err := filepath.Glob("../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var manifest struct {
			Kind     string
			Metadata struct{ Annotations map[string]string }
		}
		if err := yaml.Unmarshal(text, &manifest); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if manifest.Kind != "Pod" {
			continue
		}
		pods++
		pod := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod"}, Annotations: manifest.Metadata.Annotations,
		}
		if err := vmspec.ValidateSandbox(pod); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if pods < 2 {
		t.Errorf("%d pods in %v", pods, paths)
	}
}
