package hooks

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// instance returns the VirtualMachineInstance of a VM as JSON, as far as its pod has it.
func instance(r record.Container) ([]byte, error) {
	pod := r.Sandbox.Value
	annotations := maps.Clone(pod.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, vmspec.AnnotationPrefix) })
	vmi := kubevirt.VirtualMachineInstance{
		TypeMeta: metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachineInstance"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      r.InstanceName(),
			Namespace: pod.GetMetadata().GetNamespace(),
			// The controller labels the pod with it.
			UID:         types.UID(pod.GetLabels()[kubevirt.CreatedByLabel]),
			Labels:      pod.GetLabels(),
			Annotations: annotations,
		},
	}
	if text := pod.GetAnnotations()[vmspec.AnnotationVMI]; text != "" {
		if err := json.Unmarshal([]byte(text), &vmi.Spec); err != nil {
			return nil, fmt.Errorf("decode the instance for hooks: %w", err)
		}
	}
	text, err := json.Marshal(vmi)
	if err != nil {
		return nil, fmt.Errorf("encode the instance for hooks: %w", err)
	}
	return text, nil
}
