// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
)

// policy of every page: what the server sends, and nothing else. A report has its own.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// harden sets what browsers are told about every answer.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		// What one user may see is kept by no cache.
		h.Set("Cache-Control", "no-store")
		if embedded(r) {
			http.Error(w, "Another site's page asks for this one.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// embedded reports whether a page of another origin makes the request, other than by a link. A server of another user on
// another port is the same site, and sent the same cookies.
func embedded(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

// Guard admits one user's browser on the loopback address of a host that others may use, too. Three things are checked:
// the user of the connection's other end, since everybody on the host reaches the address, and a browser sends a cookie
// to every port; the Host header, so that no foreign name is made to point here; and the cookie of a one-time link.
type Guard struct {
	// Owner tells which user a connection comes from.
	Owner func(remote, local net.Addr) (uid int, err error)
	UID   int
	// Renewed is called with each new one-time key, since the last one was used.
	Renewed func(key string)

	cookie   string
	mu       sync.Mutex
	key      string
	sessions []string
}

// maxSessions are browsers that one page admits; the oldest has to give way.
const maxSessions = 16

// NewGuard makes the first key.
func NewGuard(uid int, owner func(remote, local net.Addr) (int, error), renewed func(key string)) *Guard {
	g := &Guard{Owner: owner, UID: uid, Renewed: renewed, cookie: "kernel-broker-" + rand.Text()[:8], key: rand.Text()}
	renewed(g.key)
	return g
}

type refusalKey struct{}

// Connection finds out whose a new connection is; it is http.Server's ConnContext.
func (g *Guard) Connection(ctx context.Context, c net.Conn) context.Context {
	uid, err := g.Owner(c.RemoteAddr(), c.LocalAddr())
	refusal := ""
	switch {
	case err != nil:
		refusal = fmt.Sprintf("It is not known which user this connection comes from: %v.", err)
	case uid != g.UID:
		refusal = "This page is another user's. Open your own with kernelctl web."
	}
	return context.WithValue(ctx, refusalKey{}, refusal)
}

func (g *Guard) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refusal, checked := r.Context().Value(refusalKey{}).(string)
		switch {
		case !checked || refusal != "":
			http.Error(w, refusal, http.StatusForbidden)
		case !loopbackName(r.Host):
			http.Error(w, fmt.Sprintf("This page is not served under the name %q. Open it by the link that kernelctl web printed.", r.Host), http.StatusMisdirectedRequest)
		case r.URL.Path == "/open":
			g.open(w, r)
		case !g.known(r):
			http.Error(w, "Open this page by the newest link that kernelctl web printed.", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// loopbackName accepts any port: the other end of a tunnel has its own.
func loopbackName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return name == "127.0.0.1" || name == "localhost"
}

// open exchanges the key of the link for a cookie.
func (g *Guard) open(w http.ResponseWriter, r *http.Request) {
	session, fresh := rand.Text(), rand.Text()
	if !g.exchange(r.FormValue("key"), session, fresh) {
		http.Error(w, "This link was used already, or is of another kernelctl web. Open the newest one that it printed.", http.StatusForbidden)
		return
	}
	g.Renewed(fresh)
	// No Secure: this is http on the loopback address.
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // G124: as the line above says
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// exchange admits a session if the key is right, and makes another key the next one.
func (g *Guard) exchange(key, session, fresh string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !same(key, g.key) {
		return false
	}
	g.key = fresh
	g.sessions = append(g.sessions, session)
	g.sessions = g.sessions[max(0, len(g.sessions)-maxSessions):]
	return true
}

func (g *Guard) known(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range r.CookiesNamed(g.cookie) {
		if slices.ContainsFunc(g.sessions, func(session string) bool { return same(c.Value, session) }) {
			return true
		}
	}
	return false
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
