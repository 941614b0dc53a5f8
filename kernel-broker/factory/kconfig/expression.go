// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"strings"
)

// expression is a parsed condition of Kconfig. One that cannot be read holds
// always: what this package believes wrongly to be possible is refused by
// kconfig later, while what it believes wrongly to be impossible is never
// tried.
type expression interface {
	holds(config Config) bool
}

// condition is an expression, and where it stands as which text.
type condition struct {
	expression
	text, where string
}

type (
	symbolIs struct {
		left, right string
		not         bool
	}
	symbolOn   string
	anyOf      []expression
	allOf      []expression
	notThis    struct{ inner expression }
	unreadable struct{}
)

func (e symbolOn) holds(config Config) bool   { return valueOf(string(e), config) != "n" }
func (e notThis) holds(config Config) bool    { return !e.inner.holds(config) }
func (e unreadable) holds(config Config) bool { return true }

func (e symbolIs) holds(config Config) bool {
	return e.not != (valueOf(e.left, config) == valueOf(e.right, config))
}

func (e anyOf) holds(config Config) bool {
	for _, part := range e {
		if part.holds(config) {
			return true
		}
	}
	return false
}

func (e allOf) holds(config Config) bool {
	for _, part := range e {
		if !part.holds(config) {
			return false
		}
	}
	return true
}

// valueOf a token: a symbol's value, or the constant itself.
func valueOf(token string, config Config) string {
	if token == "y" || token == "m" || token == "n" {
		return token
	}
	if strings.ContainsAny(token, `"'`) {
		return strings.Trim(token, `"'`)
	}
	if value, set := config[token]; set {
		return strings.Trim(value, `"`)
	}
	if token != "" && token[0] >= '0' && token[0] <= '9' {
		return token
	}
	return "n"
}

// readExpression parses symbols, !, &&, ||, =, != and parentheses.
func readExpression(text string) expression {
	parser := expressionParser{Tokens: Split(text, `"'`)}
	parsed := parser.either()
	if parser.Confused || !parser.Empty() {
		return unreadable{}
	}
	return parsed
}

type expressionParser struct {
	Tokens
	depth int
}

func (p *expressionParser) either() expression {
	parts := anyOf{p.both()}
	for p.Accept("||") {
		parts = append(parts, p.both())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

func (p *expressionParser) both() expression {
	parts := allOf{p.term()}
	for p.Accept("&&") {
		parts = append(parts, p.term())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

// nested is deeper than any condition of the kernel.
const nested = 100

func (p *expressionParser) term() expression {
	if p.depth++; p.depth > nested {
		p.Confused = true
		return unreadable{}
	}
	defer func() { p.depth-- }()
	if p.Accept("!") {
		return notThis{p.term()}
	}
	if p.Accept("(") {
		inner := p.either()
		p.Confused = p.Confused || !p.Accept(")")
		return inner
	}
	left := p.Next()
	if p.Accept("=") {
		return symbolIs{left: left, right: p.Next()}
	}
	if p.Accept("!=") {
		return symbolIs{left: left, right: p.Next(), not: true}
	}
	return symbolOn(left)
}
