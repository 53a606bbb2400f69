package admission

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestControllersAccount: with the controller's token a stranger opens, creates,
// changes and deletes no pods except VMs'.
func TestControllersAccount(t *testing.T) {
	alice, us := userClient(t, "alice"), userClient(t, account)
	ordinary := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "ordinary", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "compute", Image: "registry.example.com/app"}}},
	}
	assert.NilError(t, alice.Create(t.Context(), ordinary.DeepCopy()))
	defer func() { assert.NilError(t, alice.Delete(t.Context(), ordinary, client.GracePeriodSeconds(0))) }()
	vms, err := newPod(t, alice, "of-a-vm", nil)
	assert.NilError(t, err)
	cluster, err := kubernetes.NewForConfig(as(account, "system:masters"))
	assert.NilError(t, err)
	connect := func(pod, subresource string, options *corev1.PodExecOptions) error {
		return cluster.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource(subresource).
			VersionedParams(options, scheme.ParameterCodec).Do(t.Context()).Error()
	}
	command := func(words ...string) *corev1.PodExecOptions {
		return &corev1.PodExecOptions{Container: "guest", Command: words, Stdout: true}
	}
	named := ordinary.DeepCopy()
	named.ObjectMeta = metav1.ObjectMeta{Name: "virt-launcher-x", Namespace: "default", Labels: map[string]string{"kubevirt.io": "virt-launcher"}}
	attachment := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "hp-volume-x", Namespace: "default", Labels: map[string]string{"kubevirt.io": "hotplug-disk"},
			Annotations: map[string]string{"nodevirt.io/attachment": "uid"},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: new(true)},
			Containers: []corev1.Container{{
				Name: "hotplug-disk", Image: "registry.example.com/app", SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)},
			}},
			Volumes: []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}}},
		},
	}
	other := func(change func(*corev1.Pod)) error {
		p := attachment.DeepCopy()
		change(p)
		return us.Create(t.Context(), p)
	}
	exporter := attachment.DeepCopy()
	exporter.Name = "virt-export-x"
	exporter.Spec.Volumes = append(exporter.Spec.Volumes, corev1.Volume{
		Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}},
	})
	exporter.Spec.Volumes = append(exporter.Spec.Volumes, corev1.Volume{
		Name: "backup-socket", VolumeSource: corev1.VolumeSource{EmptyDir: new(corev1.EmptyDirVolumeSource)},
	})
	secret := func(name string, kind corev1.SecretType) error {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Type: kind}
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.ServiceAccountNameKey, "default")
		return us.Create(t.Context(), s)
	}
	service := func(name string, addresses ...string) error {
		return us.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}, ExternalIPs: addresses},
		})
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"kubevirt.io": "virt-launcher"}}}`))
	const refusal = "ValidatingAdmissionPolicy 'nodevirt-controller'"
	for name, err := range map[string]error{
		"exec":               connect("ordinary", "exec", command("nodevirt.io/pause")),
		"attach":             connect("ordinary", "attach", command()),
		"forward":            connect("ordinary", "portforward", command()),
		"a command in a VM":  connect(vms.Name, "exec", command("sh")),
		"no command in a VM": connect(vms.Name, "exec", command()),
		"create":             us.Create(t.Context(), named.DeepCopy()),
		"a host's folder": other(func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}),
		"a host's network": other(func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		"root":             other(func(p *corev1.Pod) { p.Spec.SecurityContext = nil }),
		"a token":          other(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }),
		"escalation":       other(func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = nil }),
		"another name":     other(func(p *corev1.Pod) { p.Name = "x" }),
		"a Secret":         other(func(p *corev1.Pod) { p.Spec.Volumes = exporter.Spec.Volumes }),
		"another Secret": other(func(p *corev1.Pod) {
			p.Name, p.Spec.Volumes = "virt-export-y", exporter.DeepCopy().Spec.Volumes
			p.Spec.Volumes[1].Name = "other"
		}),
		"an emptyDir": other(func(p *corev1.Pod) { p.Spec.Volumes = exporter.DeepCopy().Spec.Volumes[2:] }),
		"another emptyDir": other(func(p *corev1.Pod) {
			p.Name, p.Spec.Volumes = "virt-export-y", exporter.DeepCopy().Spec.Volumes
			p.Spec.Volumes[2].Name = "other"
		}),
		"an init container": other(func(p *corev1.Pod) {
			p.Spec.InitContainers = p.DeepCopy().Spec.Containers
			p.Spec.InitContainers[0].Name = "init"
		}),
		"an init container's escalation": other(func(p *corev1.Pod) {
			p.Name, p.Spec.Volumes, p.Spec.InitContainers = "virt-export-y", exporter.DeepCopy().Spec.Volumes, p.DeepCopy().Spec.Containers
			p.Spec.InitContainers[0].Name, p.Spec.InitContainers[0].SecurityContext = "push", nil
		}),
		"make it a VM's": us.Patch(t.Context(), ordinary.DeepCopy(), label),
		"delete":         us.Delete(t.Context(), ordinary.DeepCopy()),
	} {
		if err == nil || !strings.Contains(err.Error(), refusal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	const refusalOfExports = "ValidatingAdmissionPolicy 'nodevirt-exports'"
	for name, err := range map[string]error{
		"a Secret of another name":      secret("other", corev1.SecretTypeOpaque),
		"another type of certificate":   secret("virt-exportproxy-tls", corev1.SecretTypeOpaque),
		"a token of a service account":  secret("virt-export-x", corev1.SecretTypeServiceAccountToken),
		"a Service of another name":     service("other"),
		"a Service with more addresses": service("virt-export-x", "192.0.2.1"),
	} {
		if err == nil || !strings.Contains(err.Error(), refusalOfExports) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_ = us.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default"), client.MatchingFields{"metadata.name": "ordinary"})
	assert.NilError(t, alice.Get(t.Context(), client.ObjectKeyFromObject(ordinary), new(corev1.Pod)))
	assert.NilError(t, us.Create(t.Context(), attachment))
	assert.NilError(t, us.Delete(t.Context(), attachment, client.GracePeriodSeconds(0)))
	card := attachment.DeepCopy()
	card.ObjectMeta, card.Spec.Volumes = metav1.ObjectMeta{Name: "hp-card-x", Namespace: "default", Annotations: attachment.Annotations}, nil
	assert.NilError(t, us.Create(t.Context(), card))
	assert.NilError(t, us.Delete(t.Context(), card, client.GracePeriodSeconds(0)))
	exporter.Spec.InitContainers = exporter.DeepCopy().Spec.Containers
	exporter.Spec.InitContainers[0].Name = "push"
	exporter.Spec.Volumes = append(exporter.Spec.Volumes, corev1.Volume{
		Name: "push", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "registry"}},
	})
	assert.NilError(t, us.Create(t.Context(), exporter))
	assert.NilError(t, us.Patch(t.Context(), exporter, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"x": "y"}}}`))))
	assert.NilError(t, us.Delete(t.Context(), exporter, client.GracePeriodSeconds(0)))
	assert.NilError(t, secret("virt-export-x", corev1.SecretTypeOpaque))
	assert.NilError(t, secret("export-token-x", corev1.SecretTypeOpaque))
	assert.NilError(t, service("virt-export-x"))
	// Nothing runs here: what the policy allows fails later, for another reason.
	for name, err := range map[string]error{
		"a control": connect(vms.Name, "exec", command("nodevirt.io/pause")),
		"a console": connect(vms.Name, "attach", command()),
		"a port":    connect(vms.Name, "portforward", command()),
	} {
		if err == nil || strings.Contains(err.Error(), refusal) {
			t.Errorf("%s of a VM: %v", name, err)
		}
	}
}
