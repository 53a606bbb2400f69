package installation_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/installation"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestOtherKubeVirt: the controller leads once KubeVirt's operator has removed its installation, and says until then why it does not.
func TestOtherKubeVirt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "nodevirt", Name: "kubevirt"}}
		foreign := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kubevirt", Name: "kubevirt", Finalizers: []string{"foregroundDeleteKubeVirt"},
		}}
		cluster := fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{kubevirt.AddToScheme}})
		for _, k := range []*kubevirt.KubeVirt{own, foreign} {
			if err := cluster.Create(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
		var said []string
		log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
		done := make(chan error, 1)
		go func() { done <- installation.WaitForOther(t.Context(), cluster, time.Minute, log) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it leads beside another KubeVirt: %v", err)
		default:
		}
		if len(said) != 1 || !strings.Contains(said[0], "another KubeVirt") || !strings.Contains(said[0], "kubevirt/kubevirt") {
			t.Errorf("it says %q", said)
		}
		foreign.Finalizers = nil
		if err := cluster.Update(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
