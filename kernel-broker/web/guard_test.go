// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// guarded is a page of user 1000 over TCP, whose connections are said to come from a user.
type guarded struct {
	t  *testing.T
	at string

	mu     sync.Mutex // the server's connections and its tests are not one goroutine
	uid    int
	err    error
	issued []string
}

// from says whose the next connections are.
func (g *guarded) from(uid int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.uid, g.err = uid, err
}

// keys of the links so far.
func (g *guarded) keys() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.issued)
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{t: t, uid: 1000}
	owner := func(net.Addr, net.Addr) (int, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.uid, g.err
	}
	guard := NewGuard(1000, owner, func(key string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.issued = append(g.issued, key)
	})
	served := httptest.NewUnstartedServer(serve(t, cluster(4), func(o *Options) { o.Guard = guard }).Handler())
	served.Config.ConnContext = guard.Connection
	served.Start()
	t.Cleanup(served.Close)
	g.at = served.URL
	return g
}

// ask on a connection of its own.
func (g *guarded) ask(path string, change ...func(*http.Request)) *http.Response {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.at+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, c := range change {
		c(r)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w, err := client.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = w.Body.Close() }) // only its head is looked at
	return w
}

func with(cookies []*http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestGuard(t *testing.T) {
	g := newGuarded(t)
	link := "/open?key=" + g.keys()[0]
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	refused := func(what string, want int, path string, change ...func(*http.Request)) {
		t.Helper()
		if w := g.ask(path, change...); w.StatusCode != want || len(w.Cookies()) > 0 {
			t.Errorf("%s: status %d, want %d; cookies %v", what, w.StatusCode, want, w.Cookies())
		}
	}
	refused("no cookie", 401, "/")
	refused("no cookie, for the style", 401, "/assets/page.css")
	refused("a wrong key", 403, "/open?key=x")
	refused("no key", 403, "/open")
	refused("a name that was made to point here", 421, link, host("attacker.example"))
	refused("the same with the port", 421, link, host("127.0.0.1.attacker.example:80"))
	refused("no name", 421, link, host(":80"))
	refused("a frame on another site", 403, link, header("Sec-Fetch-Site", "cross-site"))
	g.from(1001, nil)
	refused("another user with the key", 403, link)
	g.from(1000, errors.New("no such socket"))
	refused("an unknown user with the key", 403, link)
	g.from(1000, nil)
	if keys := g.keys(); len(keys) != 1 {
		t.Fatalf("refused requests have used the key: %d keys", len(keys))
	}
	w := g.ask(link)
	if w.StatusCode != http.StatusSeeOther || w.Header.Get("Location") != "/" || len(w.Cookies()) != 1 {
		t.Fatalf("the link: %v", w)
	}
	mine := w.Cookies()
	if c := mine[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || len(c.Value) < 26 {
		t.Errorf("the cookie is %v", c)
	}
	refused("the link once more", 403, link)
	if w := g.ask("/", with(mine)); w.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %d", w.StatusCode)
	}
	if w := g.ask("/", with(mine), host("localhost:9999")); w.StatusCode != http.StatusOK {
		t.Errorf("through a tunnel from another port: %d", w.StatusCode)
	}
	g.from(1001, nil)
	refused("another user with the cookie", 403, "/", with(mine))
	g.from(1000, nil)
	refused("another name with the cookie", 421, "/", with(mine), host("attacker.example"))
	refused("a script of another port", 403, "/", with(mine), header("Sec-Fetch-Site", "same-site"))
	if w := g.ask("/", with(mine), header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Mode", "navigate")); w.StatusCode != http.StatusOK {
		t.Errorf("a link on another site: %d", w.StatusCode)
	}
	forged := *mine[0]
	forged.Value = strings.Repeat("A", len(forged.Value))
	refused("a forged cookie", 401, "/", with([]*http.Cookie{&forged}))
	w = g.ask("/open?key=" + g.keys()[1])
	if keys := g.keys(); w.StatusCode != http.StatusSeeOther || len(keys) != 3 || keys[1] == keys[2] {
		t.Errorf("the next link: %v, keys %v", w, keys)
	}
}

// Old sessions give way, so that a page that is open for long holds no more than some.
func TestSessionsAreFew(t *testing.T) {
	g := newGuarded(t)
	first := g.ask("/open?key=" + g.keys()[0]).Cookies()
	for i := range maxSessions {
		g.ask("/open?key=" + g.keys()[i+1])
	}
	if w := g.ask("/", with(first)); w.StatusCode != http.StatusUnauthorized {
		t.Errorf("the oldest of %d sessions: %d", maxSessions+1, w.StatusCode)
	}
}

// A guard that nobody asked whose connection it is admits nobody.
func TestGuardWithoutConnections(t *testing.T) {
	guard := NewGuard(1000, Owner, func(string) {})
	w := httptest.NewRecorder()
	guard.admit(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/open?key="+guard.key, nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("status %d", w.Code)
	}
}
