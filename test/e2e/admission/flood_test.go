package admission

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// flood returns a VMI whose spec has unknown keys only, of about a size in bytes.
func flood(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"flood"},"spec":{`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `"x%d":0,`, i)
	}
	b.WriteString(`"y":0}}`)
	return b.Bytes()
}

// TestFlood: 100 reviews at once of the size that the API server accepts, and as
// many of the size that the controller decodes, are refused. The controller stays
// below its memory limit, and answers others. The reviews come from the test as the
// API server's front proxy: the API server itself cannot decode so many at once.
func TestFlood(t *testing.T) {
	front, err := tls.LoadX509KeyPair(filepath.Join(suite.dir, "front.crt"), filepath.Join(suite.dir, "front.key"))
	assert.NilError(t, err)
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{front}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12,
	}}}
	var review func(object []byte, tries int) *admissionv1.AdmissionResponse
	review = func(object []byte, tries int) *admissionv1.AdmissionResponse {
		body, err := json.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request: &admissionv1.AdmissionRequest{
				UID: "1", Kind: metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"},
				Namespace: "default", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
			},
		})
		if err != nil {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"https://"+suite.address+"/apis/admission.nodevirt.io/v1/default", bytes.NewReader(body))
		if err != nil {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Remote-User", "system:apiserver")
		reply, err := client.Do(request)
		// A server that refuses a body closes the connection while the client still writes, which may
		// then report that in place of the answer.
		if errors.Is(err, net.ErrClosed) && tries > 1 {
			return review(object, tries-1)
		}
		if err != nil {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
		}
		defer func() { _ = reply.Body.Close() }()
		var answer admissionv1.AdmissionReview
		if err := json.NewDecoder(reply.Body).Decode(&answer); err != nil || answer.Response == nil {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: fmt.Sprintf("%s: %v", reply.Status, err)}}
		}
		return answer.Response
	}
	for size, want := range map[int]int32{3 << 20: http.StatusRequestEntityTooLarge, 500 << 10: http.StatusUnprocessableEntity} {
		object := flood(size)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if answer := review(object, 3); answer.Allowed || answer.Result.Code != want {
					t.Errorf("%d bytes: %d %.200s", size, answer.Result.Code, answer.Result.Message)
				}
			})
		}
		all.Wait()
		t.Logf("%d bytes: the controller's peak is %d MiB", size, peak(t)>>20)
	}
	if p := peak(t); p >= memoryLimit {
		t.Errorf("the controller took %d MiB, its limit is %d MiB", p>>20, memoryLimit>>20)
	}
	// The API server passes the refusal on.
	vmi := new(unstructured.Unstructured)
	assert.NilError(t, json.Unmarshal(flood(600<<10), &vmi.Object))
	vmi.SetNamespace("default")
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	assert.ErrorContains(t, c.Create(t.Context(), vmi), "object larger than 512 KiB")
}

// peak returns the controller's largest resident size so far, in bytes.
func peak(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", suite.controller.Pid))
	assert.NilError(t, err)
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	var kib int
	_, err = fmt.Sscan(line, &kib)
	assert.NilError(t, err)
	return kib << 10
}
