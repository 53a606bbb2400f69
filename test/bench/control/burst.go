package control

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func namespace(n int) string { return fmt.Sprintf("burst-%d", n) }

// burst makes instances and waits for their pods and their phase.
func burst(ctx context.Context, o Options, c client.Client, n int) (Burst, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(n)}}
	if err := c.Create(ctx, ns); err != nil {
		return Burst{}, err
	}
	b := Burst{Instances: n}
	begun := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(o.Clients)
	for i := range n {
		group.Go(func() error { return c.Create(groupCtx, instance(ns.Name, fmt.Sprintf("vmi-%d", i))) })
	}
	if err := group.Wait(); err != nil {
		return b, err
	}
	b.Applied = time.Since(begun)
	for {
		done, err := madePods(ctx, c, ns.Name)
		if err != nil {
			return b, err
		}
		if done == n {
			b.Made = time.Since(begun)
			return b, nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return b, fmt.Errorf("%d of %d pods: %w", done, n, err)
		}
	}
}

// madePods counts a namespace's pods, by their metadata alone.
func madePods(ctx context.Context, c client.Client, ns string) (int, error) {
	var pods metav1.PartialObjectMetadataList
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := c.List(ctx, &pods, client.InNamespace(ns), client.Limit(1)); err != nil {
		return 0, err
	}
	n := len(pods.Items)
	if pods.RemainingItemCount != nil {
		n += int(*pods.RemainingItemCount)
	}
	return n, nil
}

// instance is one as people write them, with as much in it.
func instance(ns, name string) *kubevirt.VirtualMachineInstance {
	memory := resource.MustParse("1Gi")
	return &kubevirt.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: ns,
			Labels:     map[string]string{"app": "bench", "kubevirt.io/domain": name},
			Finalizers: []string{kubevirt.VirtualMachineInstanceFinalizer},
		},
		Spec: kubevirt.VirtualMachineInstanceSpec{
			Domain: kubevirt.DomainSpec{
				CPU:    &kubevirt.CPU{Cores: 2},
				Memory: &kubevirt.Memory{Guest: &memory},
				Devices: kubevirt.Devices{
					Disks: []kubevirt.Disk{disk("root"), disk("seed")},
					Interfaces: []kubevirt.Interface{{
						Name:                   "default",
						InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)},
					}},
				},
			},
			Networks: []kubevirt.Network{{Name: "default", NetworkSource: kubevirt.NetworkSource{Pod: new(kubevirt.PodNetwork)}}},
			Volumes: []kubevirt.Volume{
				{Name: "root", VolumeSource: kubevirt.VolumeSource{
					ContainerDisk: &kubevirt.ContainerDiskSource{Image: "registry.example.com/guest:1"}}},
				{Name: "seed", VolumeSource: kubevirt.VolumeSource{
					CloudInitNoCloud: &kubevirt.CloudInitNoCloudSource{UserData: "#cloud-config\npackages: [nginx]\n"}}},
			},
		},
	}
}

func disk(name string) kubevirt.Disk {
	return kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: "virtio"}}}
}
