package export

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const ref = "registry.example.com/disks/web:1"

func pushing(e *vmExport) {
	e.Annotations = map[string]string{AnnotationImage: ref, AnnotationSecret: "robot"}
}

// pushes does what the kubelet does with the init container.
func (g *rig) pushes(state, last corev1.ContainerState) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.server(), func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: containerPush, State: state, LastTerminationState: last}}
	})
	g.expect(api.Pending, "False PodPending")
}

func (g *rig) expectImage(want string) {
	g.t.Helper()
	if got := g.condition(conditionPushed); !strings.HasPrefix(got, want) {
		g.t.Fatalf("condition %q; want %q", got, want)
	}
}

// TestImage: an init container pushes the disk before the server begins, and alone has the
// registry's Secret. The condition follows it, and the disk is pushed once.
func TestImage(t *testing.T) {
	g := newRig(t)
	g.pvc("root", block)
	vm := g.vm("web", "root")
	fakecluster.Change(t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Architecture = "arm64" })
	user := &corev1.Pod{ObjectMeta: meta("user")}
	user.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"},
	}}}
	g.Add(t, user)
	g.export(kindVM, "web", pushing)
	g.expect(api.Pending, "False InUse")
	g.expectImage("False InUse: PersistentVolumeClaim default/root is in use by pod user")
	if err := g.Delete(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	g.expect(api.Pending, "False PodPending")
	g.expectImage("False Pending: ")
	p := g.server()
	if len(p.Spec.InitContainers) != 1 {
		t.Fatalf("init containers %+v", p.Spec.InitContainers)
	}
	c := p.Spec.InitContainers[0]
	if c.Name != "push" || strings.Join(c.Args, " ") != "-export-push /etc/nodevirt-export" || len(c.Env) > 0 ||
		len(c.VolumeDevices) != 1 || *c.SecurityContext.AllowPrivilegeEscalation || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("container %+v", c)
	}
	has := func(c corev1.Container, name string) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name && m.ReadOnly })
	}
	serves := p.Spec.Containers[0]
	if !has(c, server.PushFolder) || has(c, server.TokenFolder) || has(serves, server.PushFolder) || !has(serves, server.TokenFolder) {
		t.Errorf("mounts %+v and %+v", c.VolumeMounts, serves.VolumeMounts)
	}
	if i := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == server.PushFolder }); i < 0 || p.Spec.Volumes[i].Secret.SecretName != "robot" {
		t.Errorf("volumes %+v", p.Spec.Volumes)
	}
	var served server.Config
	if err := json.Unmarshal([]byte(p.Annotations[annotationConfig]), &served); err != nil {
		t.Fatal(err)
	}
	if served.Push == nil || *served.Push != (server.Push{Image: ref, Volume: "root", Architecture: "arm64"}) {
		t.Errorf("config %+v", served.Push)
	}

	running := corev1.ContainerState{Running: new(corev1.ContainerStateRunning)}
	g.pushes(running, corev1.ContainerState{})
	g.expectImage("False Pushing: pushing to " + ref + "; progress: kubectl logs --namespace=default ")
	failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: `{"error":"denied"}`}}
	g.pushes(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, failed)
	g.expectImage("False PushFailed: denied; the kubelet tries again")
	g.expect(api.Pending, "False PodPending: denied")
	killed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	g.pushes(running, killed)
	g.expectImage("False PushFailed: OOMKilled; ")

	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: `{"digest":"sha256:00","size":7}`}}
	g.pushes(done, corev1.ContainerState{})
	g.expectImage("True Pushed: " + ref + "@sha256:00")
	g.serves()
	g.expectImage("True Pushed: ")

	// Another pod of the export serves, and pushes nothing.
	if err := g.Delete(t.Context(), g.server()); err != nil {
		t.Fatal(err)
	}
	g.now = g.now.Add(time.Minute)
	g.expect(api.Pending, "False PodPending")
	if p := g.server(); len(p.Spec.InitContainers) > 0 || slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == server.PushFolder }) {
		t.Errorf("pod %+v", p.Spec)
	}
	g.expectImage("True Pushed: ")
}

// TestWhichDisk: of several disks the export names one.
func TestWhichDisk(t *testing.T) {
	for name, c := range map[string]struct {
		volume, want string
	}{
		"several": {"", "create an export whose annotation nodevirt.io/push-volume is the PVC of one of the disks: root, data"},
		"another": {"other", "the annotation nodevirt.io/push-volume is not the PVC of one of the disks: root, data"},
		"one":     {"data", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.pvc("root")
			g.pvc("data", block)
			g.vm("web", "root", "data")
			g.export(kindVM, "web", func(e *vmExport) {
				e.Annotations = map[string]string{AnnotationImage: ref}
				if c.volume != "" {
					e.Annotations[AnnotationVolume] = c.volume
				}
			})
			if c.want == "" {
				g.expect(api.Pending, "False PodPending")
				if g.server() == nil {
					t.Error("no pod")
				}
				return
			}
			g.expect(api.Pending, "False VolumeNotFound: "+c.want)
			g.expectImage("False VolumeNotFound: " + c.want)
			if g.server() != nil {
				t.Error("a pod")
			}
		})
	}
}
