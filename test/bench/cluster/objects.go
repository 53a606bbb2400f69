package cluster

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type object = map[string]any

// guestMemory is what a guest has.
const guestMemory = "128Mi"

// subject is what is measured: a VMI, or an ordinary pod to hold it against.
type subject struct {
	resource      schema.GroupVersionResource
	running, gone string // when it is, by its own status
	object        func(r *rig, name string) object
}

var (
	vmi = subject{vmis, vmiRunning, vmiGone, func(r *rig, name string) object {
		return object{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": name},
			"spec": object{
				"terminationGracePeriodSeconds": int64(30),
				"domain": object{
					"memory": object{"guest": guestMemory},
					"devices": object{
						"disks":      []any{object{"name": "boot", "disk": object{"bus": "virtio"}}},
						"interfaces": []any{object{"name": "default", "bridge": object{}}},
					},
				},
				"networks": []any{object{"name": "default", "pod": object{}}},
				"volumes":  []any{object{"name": "boot", "containerDisk": object{"image": r.disk}}},
			},
		}
	}}
	plain = subject{pods, podRunning, podGone, func(r *rig, name string) object {
		return object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name},
			"spec": object{
				"terminationGracePeriodSeconds": int64(1),
				"containers": []any{object{
					"name": "c", "image": r.busybox, "command": []any{"httpd", "-f", "-p", "80", "-h", "/etc"},
				}},
			},
		}
	}}
)

func (r *rig) create(ctx context.Context, s subject, name string) (time.Time, error) {
	begun := time.Now()
	_, err := r.client.Resource(s.resource).Namespace(namespace).
		Create(ctx, &unstructured.Unstructured{Object: s.object(r, name)}, metav1.CreateOptions{FieldManager: "bench"})
	if err != nil {
		return begun, fmt.Errorf("create %s: %w", name, err)
	}
	return begun, nil
}

func (r *rig) remove(ctx context.Context, s subject, name string) (time.Time, error) {
	begun := time.Now()
	if err := r.client.Resource(s.resource).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return begun, fmt.Errorf("delete %s: %w", name, err)
	}
	return begun, nil
}

// answers waits until something at an object's address takes connections on port 80.
func (r *rig) answers(ctx context.Context, name string) (time.Time, error) {
	for {
		if ip := r.seen.ip(name); ip != "" {
			c, err := r.Control().Dial(ctx, "tcp", ip+":80")
			if err == nil {
				return time.Now(), c.Close()
			}
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for an answer of %s: %w", name, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
