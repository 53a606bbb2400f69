package vmi

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/foreign"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// annotationResource names the extended resource of a network's devices (the Network Plumbing
// Working Group's "Kubernetes Network Custom Resource Definition De-facto Standard").
const annotationResource = "k8s.v1.cni.cncf.io/resourceName"

// networkResources reads the extended resources of the networks from which the instance has
// devices of the node. A network without one gets its device in another way.
func (c *surroundings) networkResources(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (map[string]string, error) {
	var all map[string]string
	for _, network := range pod.DeviceNetworks(&vmi.Spec) {
		key := client.ObjectKey{Namespace: vmi.Namespace, Name: network}
		if namespace, name, found := strings.Cut(network, "/"); found {
			key = client.ObjectKey{Namespace: namespace, Name: name}
		}
		definition := new(metav1.PartialObjectMetadata)
		definition.SetGroupVersionKind(foreign.Network().GroupVersionKind)
		if err := c.live.Get(ctx, key, definition); err != nil {
			return nil, fmt.Errorf("read the resource of network %s: %w", network, err)
		}
		resource := definition.Annotations[annotationResource]
		switch {
		case resource == "":
			continue
		case !vmspec.IsExtendedResource(resource):
			return nil, fmt.Errorf("network %s: annotation %s: %.64q is not a resource of a device plug-in", network, annotationResource, resource)
		case all == nil:
			all = map[string]string{}
		}
		all[network] = resource
	}
	return all, nil
}
