package vmi

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/tracing"
)

// Options are what the instances' reconciler works with.
type Options struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events reach the users of instances.
	Events events.EventRecorder
	// DataVolumes reads CDI's objects.
	DataVolumes DataVolumes
	// NetworkDisks has nodes' QEMU open PVCs on iSCSI and RBD over the network.
	NetworkDisks bool
	// Config is the cluster's configuration.
	Config config.Source
	// Holder is the image of pods that have PVCs bound.
	Holder pod.Holder
	// Pods are the options of the pods that are made.
	Pods pod.Options
	// Tracing traces the creation of pods; nil for none.
	Tracing *tracing.Tracing
	// Nodes are the nodes of VMs.
	Nodes Nodes
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// NewReconciler makes the parts of a reconciler, and joins them.
func NewReconciler(o Options) *Reconciler {
	gone := &departures{live: o.Live, now: o.Now}
	looks := &views{client: o.Client, live: o.Live, events: newEventLooks(o.Live), departures: gone}
	ends := &endings{client: o.Client}
	reports := &reporter{client: o.Client, events: o.Events, now: o.Now}
	cluster := &surroundings{client: o.Client, live: o.Live, config: o.Config, runtimeClass: o.Pods.RuntimeClass, now: o.Now}
	consumers := &Consumers{client: o.Client, live: o.Live, runtimeClass: o.Pods.RuntimeClass, holder: o.Holder, cluster: cluster}
	pvcs := &pvcAccess{client: o.Client, dataVolumes: o.DataVolumes, views: looks, consumers: consumers}
	disks := &networkDisks{client: o.Client, live: o.Live, enabled: o.NetworkDisks, pvcs: pvcs}
	strays := &strays{client: o.Client, live: o.Live, now: o.Now, views: looks, ends: ends}
	networks := &definitions{live: o.Live, now: o.Now}
	turns, states := new(turns), &states{client: o.Client, config: o.Config}
	maker := &maker{
		client: o.Client, live: o.Live, events: o.Events, options: o.Pods, turns: turns,
		pvcs: pvcs, guests: &nodeGuests{client: o.Client, live: o.Live, nodes: o.Nodes, now: o.Now}, states: states, disks: disks, cluster: cluster, reports: reports, tracing: o.Tracing,
	}
	return &Reconciler{
		Guests:     &Guests{client: o.Client, turns: turns, views: looks, pvcs: pvcs, disks: disks},
		Pods:       &Pods{client: o.Client, options: o.Pods, views: looks, pvcs: pvcs, states: states, disks: disks, cluster: cluster, networks: networks},
		Consumers:  consumers,
		client:     o.Client,
		departures: gone,
		strays:     strays,
		maker:      maker,
		follower: &follower{
			client: o.Client, live: o.Live, events: o.Events, now: o.Now, config: o.Config, views: looks, pvcs: pvcs, ends: ends,
			offers: &offers{live: o.Live, now: o.Now, cluster: cluster}, networks: networks, cards: &cardLooks{client: o.Client, now: o.Now, events: looks}, maker: maker, strays: strays, overdue: &overdue{nodes: o.Nodes, events: o.Events, now: o.Now}, missing: newMissingGuests(o.Now), resizer: &resizer{client: o.Client, events: o.Events}, reports: reports,
		},
		reports: reports,
	}
}

// Methods of a part that several others need.

// viewer returns what is known of a pod's guest; [views].
type viewer interface {
	look(ctx context.Context, p *corev1.Pod) (view, error)
}

// ender ends pods; [endings].
type ender interface {
	deletePod(ctx context.Context, p *corev1.Pod, how ...client.DeleteOption) error
	release(ctx context.Context, v view) error
}

// finder returns an instance's PVCs, and why the instance can't use them; [pvcAccess].
type finder interface {
	pvcObjects(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (pod.PVCObjects, error)
	unusable(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects) (*trouble, error)
	inUse(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, use pod.PVC, pvc *corev1.PersistentVolumeClaim) (*trouble, error)
}

// reader returns what a pod depends on in its cluster; [surroundings].
type reader interface {
	read(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (pod.Surroundings, error)
}

// binder has Kubernetes bind PVCs; [Consumers].
type binder interface {
	ensure(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects) (string, error)
	remove(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, claim string, pvcs pod.PVCObjects) error
	late(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error)
}

// diskFinder returns an instance's network disks; [networkDisks].
type diskFinder interface {
	find(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects) (pod.NetworkDisks, *trouble, error)
}

// statuses writes instances' statuses; [reporter].
type statuses interface {
	report(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v view) error
	wait(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, t *trouble, err error) (ctrl.Result, error)
}
