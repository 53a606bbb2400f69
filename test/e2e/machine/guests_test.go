//go:build machine

package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// closings returns how many seconds, and writes to its disk, a guest takes to power off.
func closings() int {
	if *asVM {
		return 8 // seconds are longer there, and libvirt-guests waits a minute
	}
	return 20
}

// slowGuest is user data of a guest that counts seconds on its console. At the power button it first writes to its disk,
// and reports each write that is on the disk.
func slowGuest() string {
	return fmt.Sprintf(`#!/bin/sh
i=0
while :; do i=$((i + 1)); echo "count $i" >/dev/console; sleep 1; done &
cat >/etc/acpi/PWRF/00000080 <<'END'
#!/bin/sh
[ ! -e /run/closing ] || exit 0
: >/run/closing
. /lib/guest.sh
mount_disk
for i in $(seq %d); do echo "$i" >>/disk/kept && sync && echo "closing $i" >/dev/console; sleep 1; done
exec /etc/stop poweroff
END
`, closings())
}

// guestPod returns a pod with a slow guest whose disk is a file of the node's.
func guestPod(pod string, changes ...func(*corev1.Pod)) *corev1.Pod {
	class, grace := "vm", int64(120)
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: pod, Annotations: map[string]string{vmspec.AnnotationUserData: slowGuest()}},
		Spec: corev1.PodSpec{
			NodeName: name, RuntimeClassName: &class, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "guest", Image: tinyImage, ImagePullPolicy: corev1.PullNever,
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
					Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("160Mi")},
				},
			}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// annotated sets an annotation of a pod.
func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

// specified gives a pod the spec of a VMI, whose device is a part of its devices in JSON and whose disk root is a volume.
func specified(device, root string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		data, _ := json.Marshal(slowGuest()) // a string cannot fail
		delete(p.Annotations, vmspec.AnnotationUserData)
		p.Annotations[vmspec.AnnotationVMContainer] = "guest"
		p.Annotations[vmspec.AnnotationVMI] = fmt.Sprintf(`{
			"domain": {"devices": {%s"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "cdrom": {"bus": "scsi"}}]}},
			"volumes": [{"name": "root", %s}, {"name": "seed", "cloudInitNoCloud": {"userData": %s}}]}`, device, root, data)
	}
}

// onVolume has a pod's disk in a folder of the node.
func onVolume(p *corev1.Pod) {
	kind := corev1.HostPathDirectoryOrCreate
	p.Annotations[vmspec.AnnotationDiskOrigin] = "root=disk"
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "root", MountPath: "/claims/root"}}
	p.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/claims/root", Type: &kind},
	}}}
}

func apply(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := suite.Apply(t.Context(), string(text)); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	args := []string{"delete", "pod", "--timeout=20m"}
	for _, p := range pods {
		args = append(args, p.Name)
	}
	if _, err := suite.Kubectl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// container prints the ID of a pod's VM container that runs.
func container(pod string) string {
	return "crictl ps --state running --label io.kubernetes.pod.name=" + pod + " -q"
}

// consoleOf prints what the guest of a pod that runs has written.
func consoleOf(pod string) string { return "crictl logs $(" + container(pod) + ") 2>&1" }

// guestsUp waits until guests count.
func guestsUp(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		untilOutput(t, consoleOf(pod), "count 3")
	}
}

// logOf returns the path of the console's log of the guest of a pod that runs.
func logOf(t *testing.T, pod string) string {
	t.Helper()
	return must(t, "crictl inspect -o go-template --template '{{.status.logPath}}' $("+container(pod)+")")
}

// closed fails the test unless a guest has made all writes, and then powered itself off, as the log of its console says.
func closed(t *testing.T, pod, file string) {
	t.Helper()
	log := must(t, "cat "+file)
	at := 0
	for i := range closings() {
		line := fmt.Sprintf("closing %d", i+1)
		n := strings.Index(log[at:], line)
		if n < 0 {
			t.Errorf("guest %s was cut off: %q is missing:\n%s", pod, line, log[max(len(log)-2000, 0):])
			return
		}
		at += n
	}
	if !strings.Contains(log[at:], "nodevirt guest: poweroff") {
		t.Errorf("guest %s did not power itself off:\n%s", pod, log[max(len(log)-2000, 0):])
	}
}

// page returns a page of a guest's web server.
func page(t *testing.T, pod, path string) string {
	t.Helper()
	ip, err := suite.Kubectl(t.Context(), "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
	if err != nil {
		t.Fatal(err)
	}
	out := must(t, "bash -c 'exec 3<>/dev/tcp/"+ip+"/80; printf \"GET "+path+" HTTP/1.0\\r\\n\\r\\n\" >&3; timeout 30 cat <&3'")
	_, body, _ := strings.Cut(strings.ReplaceAll(out, "\r\n", "\n"), "\n\n")
	return strings.TrimSpace(body)
}

// ended returns the reason and the exit code with which the last guest of a pod ended.
func ended(t *testing.T, pod string) string {
	t.Helper()
	out, err := suite.Kubectl(t.Context(), "get", "pod", pod, "-o",
		"jsonpath={.status.containerStatuses[0].lastState.terminated.reason} {.status.containerStatuses[0].lastState.terminated.exitCode}")
	if err != nil {
		t.Fatal(err)
	}
	return out
}
