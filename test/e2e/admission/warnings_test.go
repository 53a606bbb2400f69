package admission

import (
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// warnings keeps what the API server warns of.
type warnings struct {
	sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.all = append(w.all, text)
}

// TestPodFieldWarnings: the API server warns of fields that the guest of a pod does not see, and of no others.
func TestPodFieldWarnings(t *testing.T) {
	env := []corev1.EnvVar{{Name: "A", Value: "b"}}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"nothing":    {func(*corev1.Pod) {}, ""},
		"env":        {func(p *corev1.Pod) { p.Spec.Containers[0].Env = env }, "env, envFrom: a VM gets no environment variables"},
		"no VM":      {func(p *corev1.Pod) { p.Spec.Containers[0].Env, p.Spec.RuntimeClassName = env, nil }, ""},
		"of sidecar": {func(p *corev1.Pod) { beside(p).Env = env }, ""},
		"of either":  {func(p *corev1.Pod) { beside(p).Env, p.Annotations = env, nil }, ""},
		"of the VM":  {func(p *corev1.Pod) { beside(p); p.Spec.Containers[0].Env = env }, "env, envFrom: a VM gets no environment variables"},
		"aliases": {func(p *corev1.Pod) {
			p.Spec.HostAliases = []corev1.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"x"}}}
		}, "spec.hostAliases: a VM does not get these"},
		"sysctls": {func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_syncookies", Value: "1"}}}
		}, "spec.securityContext.sysctls: a VM has its own kernel"},
	} {
		t.Run(name, func(t *testing.T) {
			config, seen := as("alice", "system:masters"), &warnings{}
			config.WarningHandler = seen
			c, err := client.New(config, client.Options{})
			assert.NilError(t, err)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "warned", Namespace: "default", Annotations: map[string]string{vmspec.AnnotationVMContainer: "guest"}},
				Spec:       corev1.PodSpec{RuntimeClassName: new("vm"), Containers: []corev1.Container{{Name: "guest", Image: "registry.example.com/guest"}}},
			}
			tt.change(pod)
			assert.NilError(t, c.Create(t.Context(), pod, client.DryRunAll))
			got := strings.Join(seen.all, "\n")
			if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("warned of %q; want %q", got, tt.want)
			}
		})
	}
}

// beside adds a sidecar to a pod.
func beside(p *corev1.Pod) *corev1.Container {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "beside", Image: "registry.example.com/beside"})
	return &p.Spec.Containers[1]
}
