package host_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/host"
	"github.com/nodevirt/nodevirt/test/apiserver"
)

// tokens are of an administrator, a kubelet and another user.
const tokens = `test-admin,admin,1,"system:masters"
test-node,system:node:node-1,2,"system:nodes"
test-user,user,3,""
`

// kubeconfig writes a kubeconfig with a token.
func kubeconfig(t *testing.T, s *apiserver.Server, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.WriteKubeconfig(path, clientapi.AuthInfo{Token: token}); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNodeObject reads and labels a Node with a kubelet's rights, at a real API server.
func TestNodeObject(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	s := apiserver.ForTest(t, "--token-auth-file="+file, "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
	admin, err := kube.New(s.Config(), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, h := t.Context(), host.Host{}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"zone": "a"}}}
	if err := admin.Create(ctx, n); err != nil {
		t.Fatal(err)
	}
	heartbeat := metav1.Time{Time: time.Now().Truncate(time.Second)}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "m", LastHeartbeatTime: heartbeat},
	}
	n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Name: ""}, {Name: "vm"}}
	if err := admin.Status().Update(ctx, n); err != nil {
		t.Fatal(err)
	}

	config := kubeconfig(t, s, "test-node")
	st, err := h.Status(ctx, config)
	if err != nil || !st.Ready || st.Message != "m" || !st.Heartbeat.Equal(heartbeat.Time) || !slices.Equal(st.Handlers, []string{"", "vm"}) {
		t.Errorf("status %+v, %v", st, err)
	}
	value := "true"
	for _, want := range []*string{&value, nil} {
		if err := h.SetLabel(ctx, config, "nodevirt.io/node", want); err != nil {
			t.Fatal(err)
		}
		st, err := h.Status(ctx, config)
		got, has := st.Labels["nodevirt.io/node"]
		if err != nil || has != (want != nil) || has && got != *want || st.Labels["zone"] != "a" {
			t.Errorf("labels %v, %v", st.Labels, err)
		}
	}

	if _, err := h.Status(ctx, kubeconfig(t, s, "test-user")); err == nil || !strings.Contains(err.Error(), "want a kubelet's") {
		t.Errorf("the kubeconfig of another user gave %v", err)
	}
	if _, err := h.Status(ctx, "/nowhere"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a missing kubeconfig gave %v", err)
	}
}
