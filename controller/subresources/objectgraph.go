package subresources

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/instancetype"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/state"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// labelDependency is on each object of a graph: what it is to the VM. It and its values are KubeVirt's.
const labelDependency = "kubevirt.io/dependency-type"

const (
	storage    = "storage"
	network    = "network"
	compute    = "compute"
	dependency = "config"
)

// graphs returns what a VM needs, such as for a backup of it, by name: the objects need not exist.
type graphs struct {
	objects client.Client
	found   interface {
		instances
		machines
		pods
	}
}

// machine is the graph of a virtual machine.
func (g *graphs) machine(ctx context.Context, c *call) error {
	vm, err := g.found.machine(ctx, c)
	if err != nil {
		return err
	}
	root := node(kubevirt.GroupVersion.Group, "VirtualMachine", vm.Namespace, vm.Name, compute)
	vmi, err := g.found.instance(ctx, c)
	switch {
	case err == nil && metav1.IsControlledBy(vmi, vm):
		of := node(kubevirt.GroupVersion.Group, "VirtualMachineInstance", vmi.Namespace, vmi.Name, compute)
		if err := g.addPod(ctx, &of, vmi); err != nil {
			return err
		}
		add(&root, of)
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	for _, r := range instancetype.References(vm) { // a restored VM can do without the object, and not without the revision
		one := node("instancetype.kubevirt.io", r.Kind, r.Namespace, r.Name, dependency)
		one.Optional = new(true)
		add(&root, one)
		add(&root, node("apps", "ControllerRevision", vm.Namespace, r.Revision, dependency))
	}
	if t := vm.Spec.Template; t != nil {
		kept, err := state.Of(ctx, g.objects, vm)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		addDependencies(&root, &t.Spec, kept)
	}
	return g.reply(c, root)
}

// instance is the graph of an instance.
func (g *graphs) instance(ctx context.Context, c *call) error {
	vmi, err := g.found.instance(ctx, c)
	if err != nil {
		return err
	}
	root := node(kubevirt.GroupVersion.Group, "VirtualMachineInstance", vmi.Namespace, vmi.Name, compute)
	if err := g.addPod(ctx, &root, vmi); err != nil {
		return err
	}
	var kept *corev1.PersistentVolumeClaim
	if pod.KeepsState(vmi) {
		all, err := state.Labelled(ctx, g.objects, vmi.Namespace, vmi.Name)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		kept = pod.FindState(vmi, all)
	}
	addDependencies(&root, &vmi.Spec, kept)
	return g.reply(c, root)
}

func (g *graphs) addPod(ctx context.Context, to *kubevirt.ObjectGraphNode, vmi *kubevirt.VirtualMachineInstance) error {
	found, err := g.found.podOf(ctx, vmi)
	if err == nil {
		add(to, node("", "Pod", found.Namespace, found.Name, compute))
	}
	return client.IgnoreNotFound(err)
}

// reply writes a graph without what the call does not want.
func (g *graphs) reply(c *call, root kubevirt.ObjectGraphNode) error {
	var o kubevirt.ObjectGraphOptions
	if err := c.body(&o); err != nil {
		return err
	}
	selector := labels.Everything()
	if o.LabelSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(o.LabelSelector); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
		}
	}
	optional := o.IncludeOptionalNodes == nil || *o.IncludeOptionalNodes
	root.Children = filtered(root.Children, func(n *kubevirt.ObjectGraphNode) bool {
		return (n.Optional == nil || optional) && selector.Matches(labels.Set(n.Labels))
	})
	return c.reply(root)
}

func filtered(given []kubevirt.ObjectGraphNode, wants func(*kubevirt.ObjectGraphNode) bool) []kubevirt.ObjectGraphNode {
	var all []kubevirt.ObjectGraphNode
	for _, n := range given {
		if wants(&n) {
			n.Children = filtered(n.Children, wants)
			all = append(all, n)
		}
	}
	return all
}

// addDependencies adds what an instance names, and the PVC with its persistent state unless it is nil.
func addDependencies(to *kubevirt.ObjectGraphNode, s *kubevirt.VirtualMachineInstanceSpec, kept *corev1.PersistentVolumeClaim) {
	namespace := *to.ObjectReference.Namespace
	own := func(kind, name, label string) kubevirt.ObjectGraphNode { return node("", kind, namespace, name, label) }
	secret := func(name string) { add(to, own("Secret", name, dependency)) }
	if f := s.Domain.Firmware; f != nil && f.KernelBoot != nil && f.KernelBoot.Container != nil {
		secret(f.KernelBoot.Container.ImagePullSecret)
	}
	for _, v := range vmspec.CredentialVolumes(s.AccessCredentials) {
		secret(v.Source.Secret.SecretName)
	}
	for _, v := range vmspec.PodVolumes(s.Volumes) {
		secret(v.PullSecret)
		add(to, own("ServiceAccount", v.ServiceAccount, dependency))
		if v.Source == nil {
			continue
		}
		if c := v.Source.PersistentVolumeClaim; c != nil {
			pvc := own("PersistentVolumeClaim", c.ClaimName, storage)
			if v.Kind.Field == vmspec.FieldDataVolume {
				filled := node("cdi.kubevirt.io", "DataVolume", namespace, c.ClaimName, storage)
				add(&filled, pvc)
				pvc = filled
			}
			add(to, pvc)
		}
		if c := v.Source.ConfigMap; c != nil {
			add(to, own("ConfigMap", c.Name, dependency))
		}
		if c := v.Source.Secret; c != nil {
			secret(c.SecretName)
		}
		if c := v.Source.Projected; c != nil {
			for _, source := range c.Sources {
				if source.Secret != nil {
					secret(source.Secret.Name)
				}
			}
		}
	}
	if kept != nil {
		add(to, own("PersistentVolumeClaim", kept.Name, storage))
	}
	for _, n := range s.Networks {
		if n.Multus != nil {
			of, name, found := strings.Cut(n.Multus.NetworkName, "/")
			if !found {
				of, name = namespace, n.Multus.NetworkName
			}
			one := node("k8s.cni.cncf.io", "NetworkAttachmentDefinition", of, name, network)
			one.Optional = new(true)
			add(to, one)
		}
	}
}

// node is an object. One of no namespace has an empty one, as clients of KubeVirt expect it.
func node(group, kind, namespace, name, label string) kubevirt.ObjectGraphNode {
	return kubevirt.ObjectGraphNode{
		ObjectReference: corev1.TypedObjectReference{APIGroup: &group, Kind: kind, Namespace: &namespace, Name: name},
		Labels:          map[string]string{labelDependency: label},
	}
}

// add adds an object that has a name, once.
func add(to *kubevirt.ObjectGraphNode, n kubevirt.ObjectGraphNode) {
	if n.ObjectReference.Name == "" {
		return
	}
	for _, has := range to.Children {
		a, b := has.ObjectReference, n.ObjectReference
		if a.Kind == b.Kind && a.Name == b.Name && *a.Namespace == *b.Namespace {
			return
		}
	}
	to.Children = append(to.Children, n)
}
