// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"regexp"
	"strings"
)

// expression is a parsed condition of Kconfig. One that cannot be read holds
// always: what this package believes wrongly to be possible is refused by
// kconfig later, while what it believes wrongly to be impossible is never
// tried.
type expression func(config Config) bool

func always(Config) bool { return true }

// condition is an expression, and where it stands as which text.
type condition struct {
	holds       expression
	text, where string
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

// words of an expression: operators, constants in quotes, which end with the text
// where they are not closed, and symbols.
var words = regexp.MustCompile(`&&|\|\||!=|[!()=<>$&|]|"[^"]*(?:"|$)|'[^']*(?:'|$)|[^\s\v\x{85}\p{Z}!()=<>$&|"']+`)

// readExpression reads symbols, !, &&, ||, =, != and parentheses.
func readExpression(text string) expression {
	holds, _ := parseExpression(text)
	return holds
}

func parseExpression(text string) (holds expression, known bool) {
	parser := expressionParser{words: words.FindAllString(text, -1)}
	holds = parser.either()
	if parser.confused || len(parser.words) > 0 {
		return always, false
	}
	return holds, true
}

type expressionParser struct {
	words []string
	depth int
	// confused: a name was wanted where none stood.
	confused bool
}

// accept takes the next word if it is this one.
func (p *expressionParser) accept(word string) bool {
	if len(p.words) == 0 || p.words[0] != word {
		return false
	}
	p.words = p.words[1:]
	return true
}

// name takes a symbol or a constant.
func (p *expressionParser) name() string {
	if len(p.words) == 0 || strings.ContainsAny(p.words[0][:1], "!()=<>$&|") {
		p.confused = true
		return ""
	}
	name := p.words[0]
	p.words = p.words[1:]
	return name
}

func (p *expressionParser) either() expression {
	one := p.both()
	if !p.accept("||") {
		return one
	}
	rest := p.either()
	return func(config Config) bool { return one(config) || rest(config) }
}

func (p *expressionParser) both() expression {
	one := p.term()
	if !p.accept("&&") {
		return one
	}
	rest := p.both()
	return func(config Config) bool { return one(config) && rest(config) }
}

// nested is deeper than any condition of the kernel.
const nested = 100

func (p *expressionParser) term() expression {
	if p.depth++; p.depth > nested {
		p.confused = true
		return always
	}
	defer func() { p.depth-- }()
	switch {
	case p.accept("!"):
		inner := p.term()
		return func(config Config) bool { return !inner(config) }
	case p.accept("("):
		inner := p.either()
		p.confused = p.confused || !p.accept(")")
		return inner
	}
	left := p.name()
	equal := p.accept("=")
	if !equal && !p.accept("!=") {
		return func(config Config) bool { return valueOf(left, config) != "n" }
	}
	right := p.name()
	return func(config Config) bool { return equal == (valueOf(left, config) == valueOf(right, config)) }
}
