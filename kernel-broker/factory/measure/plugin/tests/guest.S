/*
 * A guest without a kernel, for QEMU's -kernel, of which is known what the plugin
 * has to count: the body of each region, and three instructions of its end.
 *
 *	cc -c -o guest.o guest.S && ld -N -Ttext=0x100000 -e start -o guest guest.o
 */
	.macro region number
	jmp 1f
1:	nopl 0x7ab00000 + \number(%rax)
	jmp 1f
1:
	.endm

	/* A marker counts with all of its block. */
	.macro end
	jmp 1f
1:	nopl 0x7ab00000(%rax)
	jmp 1f
1:
	.endm

	/* What follows begins so many bytes before the end of a page. */
	.macro before bytes
	.p2align 12
	.fill 4096 - \bytes, 1, 0xcc
	.endm

	.section .note.pvh, "a", @note
	.long 4, 4, 18
	.asciz "Xen"
	.long start

	.text
	.code32
	.globl start
start:
	mov $tables, %eax
	mov %eax, %cr3
	mov %cr4, %eax
	or $0x20, %eax
	mov %eax, %cr4
	mov $0xc0000080, %ecx
	rdmsr
	or $0x100, %eax
	wrmsr
	mov %cr0, %eax
	or $0x80000001, %eax
	mov %eax, %cr0
	lgdt descriptor
	ljmp $8, $long_mode

	.code64
long_mode:
	mov $top, %esp
	cld
	region 1 /* 64 bytes by bytes */
	mov $buffer, %edi
	mov $64, %ecx
	rep stosb
	end
	region 2 /* and by eight */
	mov $buffer, %edi
	mov $8, %ecx
	rep stosq
	end
	region 3 /* none */
	mov $buffer, %edi
	xor %ecx, %ecx
	rep stosb
	end
	movb $7, buffer + 3
	region 4 /* finds nothing */
	mov $buffer, %edi
	mov $64, %ecx
	mov $9, %al
	repne scasb
	end
	region 5 /* finds the fourth */
	mov $buffer, %edi
	mov $64, %ecx
	mov $7, %al
	repne scasb
	end
	region 6
	call cut_move
	end
	region 7
	call cut_call
	end
	region 8
	mov $buffer, %edi
	mov $8, %ecx
	call cut_string
	end
	region 9
	mov $10, %ecx
	call cut_branch
	end
	region 10
	mov $buffer, %edi
	mov $8, %ecx
	call whole_string
	end
	region 11
	mov $10, %ecx
	call whole_branch
	end
	region 12
	call whole_return
	end
	/* Power off, by the q35's ports. */
	mov $0x604, %dx
	mov $0x2000, %ax
	outw %ax, %dx
	mov $0xfe, %al
	out %al, $0x64
1:	hlt
	jmp 1b

	before 4
cut_move:
	nop
	nop
	movabs $0x1122334455667788, %rax
	ret
	before 3
cut_call:
	nop
	call 1f
	ret
1:	ret
	before 4
cut_string:
	nop
	nop
	rep stosq
	ret
	before 5
cut_branch:
	nop
	nop
	dec %ecx
	jne cut_branch
	ret
	before 5
whole_string:
	nop
	nop
	rep stosq
	ret
	before 6
whole_branch:
	nop
	nop
	dec %ecx
	jne whole_branch
	ret
	before 3
whole_return:
	nop
	nop
	ret

	.data
	.p2align 12
tables:
	.quad 1f + 3
	.fill 511, 8, 0
1:	.quad 2f + 3
	.fill 511, 8, 0
2:	.quad 0x83, 0x200083
	.fill 510, 8, 0
	.quad 0
gdt:	.quad 0, 0x00af9b000000ffff
descriptor:
	.word 15
	.long gdt
buffer:
	.fill 4096, 1, 0
top:
